#include "config/config_files.h"
#include "config/run_config.h"

namespace kata {
namespace {

using test::ConfigFiles;

struct Section {
  const char* name;
  std::string text;
  std::string message;  // empty: it is good
};

class MixerSections : public ::testing::TestWithParam<Section> {};

TEST_P(MixerSections, AreChecked) {
  const ConfigFiles files;
  EXPECT_EQ(files.error(GetParam().text), GetParam().message);
}

Section model(const char* name, const std::string& text, const std::string& message) {
  return {name, "data: {train: [a.bin]}\nmodel: " + text, message};
}

INSTANTIATE_TEST_SUITE_P(
    Model, MixerSections,
    ::testing::Values(
        model("Heads", "{hidden: 100, heads: 3, mixer: {preset: softmax}}",
              "x.yaml:2:29: model.heads: hidden 100 is not divisible by 3 heads; change one of them or give "
              "head_dim"),
        model("HeadDimGiven", "{hidden: 100, heads: 3, head_dim: 32, mixer: {preset: softmax}}", ""),
        model("KvHeads", "{heads: 4, kv_heads: 3, mixer: {preset: softmax}}",
              "x.yaml:2:29: model.kv_heads: 4 heads are not divisible by 3 kv_heads"),
        model("NoMixer", "{heads: 4}",
              "x.yaml:2:8: model.mixer: no mixer; give one, such as mixer: {preset: kata_m2}, or a list with "
              "one per layer"),
        model("EmptyList", "{mixer: []}",
              "x.yaml:2:16: model.mixer: no mixer; give one, such as mixer: {preset: kata_m2}, or a list "
              "with one per layer"),
        model("EmptyMixer", "{mixer: {}}",
              "x.yaml:2:16: model.mixer: no mixer; give preset (one of softmax, linear_orthant, "
              "linear_lorentz, kata_m1, "
              "kata_m2, kata_m4, kata_s2, kata_s4, hermitian_kata, quaternionic_kata, gatedkata_m1, "
              "gatedkata_m2, deltakata_m1, deltakata_m2, gateddeltakata_m1, gateddeltakata_m2, deltanet, "
              "gated_deltanet, mamba2), or map and read"),
        model("MixerIsWord", "{mixer: kata_m2}",
              "x.yaml:2:16: model.mixer: expected a map or a list of maps (one mixer for all layers, or a "
              "list with one "
              "per layer), found 'kata_m2'"),
        model("ListLength", "{layers: 3, mixer: [{preset: softmax}, {preset: kata_m1}]}",
              "x.yaml:2:27: model.mixer: a list of 2 mixers for 3 layers; give one per layer, or a single "
              "map for all"),
        model("ListOfOne", "{layers: 2, mixer: [{preset: softmax}]}",
              "x.yaml:2:27: model.mixer: a list of 1 mixers for 2 layers; give one per layer, or a single "
              "map for all"),
        model("Preset", "{mixer: {preset: kata_m3}}",
              "x.yaml:2:25: model.mixer.preset: expected one of softmax, linear_orthant, linear_lorentz, "
              "kata_m1, kata_m2, "
              "kata_m4, kata_s2, kata_s4, hermitian_kata, quaternionic_kata, gatedkata_m1, gatedkata_m2, "
              "deltakata_m1, deltakata_m2, gateddeltakata_m1, gateddeltakata_m2, deltanet, gated_deltanet, "
              "mamba2, found 'kata_m3'; did you mean 'kata_m1'?"),
        model("Contradiction", "{layers: 1, mixer: [{preset: kata_m2, groups: 4}]}",
              "x.yaml:2:54: model.mixer.0.groups: '4' contradicts preset kata_m2, which has '2'; leave out "
              "one of the two"),
        model("ContradictionMap", "{mixer: {preset: kata_m2, map: orthant}}",
              "x.yaml:2:39: model.mixer.map: 'orthant' contradicts preset kata_m2, which has 'psd'; leave "
              "out one of the two"),
        model("ContradictionRead", "{mixer: {preset: kata_m2, read: raw}}",
              "x.yaml:2:40: model.mixer.read: 'raw' contradicts preset kata_m2, which has 'normalised'; "
              "leave out one of the two"),
        model("PointWithoutRead", "{mixer: {map: psd}}",
              "x.yaml:2:16: model.mixer: no mixer; give preset (one of softmax, linear_orthant, "
              "linear_lorentz, kata_m1, "
              "kata_m2, kata_m4, kata_s2, kata_s4, hermitian_kata, quaternionic_kata, gatedkata_m1, "
              "gatedkata_m2, deltakata_m1, deltakata_m2, gateddeltakata_m1, gateddeltakata_m2, deltanet, "
              "gated_deltanet, mamba2), or map and read"),
        model("PointWithoutMap", "{mixer: {read: raw}}",
              "x.yaml:2:16: model.mixer: read 'raw' needs a map; one of identity, orthant, lorentz, psd, "
              "psd_sum, hermitian, quaternionic"),
        model(
            "DeltaNormalised", "{mixer: {map: psd, update: delta, read: normalised}}",
            "x.yaml:2:48: model.mixer.read: normalised with update delta, whose weights have either sign and "
            "no mass; expected raw"),
        model("SoftmaxDelta", "{mixer: {read: softmax, update: delta}}",
              "x.yaml:2:40: model.mixer.update: delta with read softmax, which keeps no state to correct; "
              "leave "
              "it out"),
        model("SoftmaxDecay", "{mixer: {read: softmax, decay: scalar}}",
              "x.yaml:2:39: model.mixer.decay: scalar with read softmax, which keeps no state that fades; "
              "leave "
              "it out"),
        model(
            "SoftmaxGate", "{mixer: {preset: softmax, output_gate: true}}",
            "x.yaml:2:47: model.mixer.output_gate: true on softmax; the softmax layer is the Llama layer: no "
            "convolution, no norm of q and k, no gate"),
        model(
            "DeltaScale", "{mixer: {preset: kata_m1, delta_scale: 0.5}}",
            "x.yaml:2:47: model.mixer.delta_scale: 0.5 with update add; it scales the products of the delta "
            "rule"),
        model("DeltaScaleRange", "{mixer: {preset: deltakata_m1, delta_scale: 1.5}}",
              "x.yaml:2:52: model.mixer.delta_scale: expected a finite number, above 0 to 1, found '1.5'"),
        model("DeltaForm", "{mixer: {preset: deltanet, form: quadratic}}",
              "x.yaml:2:41: model.mixer.form: quadratic with update delta; expected auto, chunked or "
              "recurrent"),
        model("DeltaChunk", "{mixer: {preset: deltakata_m1, chunk: 65}}",
              "x.yaml:2:46: model.mixer.chunk: 65 with update delta, which solves a system of this size; "
              "expected at most 64"),
        model("State", "{mixer: {preset: kata_m1, state: 64}}",
              "x.yaml:2:41: model.mixer.state: 64, but only preset mamba2 has keys of their own width; leave "
              "it "
              "out"),
        model("Mamba2State", "{mixer: {preset: mamba2, state: 0}}",
              "x.yaml:2:40: model.mixer.state: 0 on mamba2; expected the width of its keys, 1 or more"),
        model("Mamba2Conv", "{mixer: {preset: mamba2, conv: 0}}",
              "x.yaml:2:39: model.mixer.conv: 0 on mamba2, which has a convolution; expected 2 to 8"),
        model(
            "Mamba2Rope", "{mixer: {preset: mamba2, rope: {base: 10}}}",
            "x.yaml:2:39: model.mixer.rope: given on mamba2; the Mamba-2 layer has no norm of keys, no rope "
            "and a gate of its own"),
        model("Mamba2Heads", "{hidden: 60, heads: 1, head_dim: 32, mixer: {preset: mamba2}}",
              "x.yaml:2:52: model.mixer: mamba2 cuts 2 x hidden = 120 into heads of head_dim 32; expected a "
              "divisor"),
        model(
            "Hermitian", "{head_dim: 33, mixer: {preset: hermitian_kata, rope: none}}",
            "x.yaml:2:30: model.mixer.map: hermitian takes 2 coordinates as one number, but head_dim is 33"),
        model("Quaternionic", "{head_dim: 34, mixer: {preset: quaternionic_kata}}",
              "x.yaml:2:30: model.mixer.map: quaternionic takes 4 coordinates as one number, but head_dim is "
              "34"),
        model("DeltaGood",
              "{mixer: {map: orthant, update: delta, decay: scalar, read: raw, delta_scale: 0.5}}", ""),
        model("RetentionGood", "{mixer: {map: identity, decay: scalar, read: raw}}", ""),
        model(
            "SoftmaxMap", "{mixer: {read: softmax, map: psd}}",
            "x.yaml:2:37: model.mixer.map: 'psd' with read softmax, which has no feature map; leave out map"),
        model("Identity", "{mixer: {map: identity, read: normalised}}",
              "x.yaml:2:38: model.mixer.read: normalised with map identity, whose scores have either sign; "
              "expected raw"),
        model("OrthantGroups", "{mixer: {map: orthant, read: normalised, groups: 2}}",
              "x.yaml:2:57: model.mixer.groups: 2 groups, but only the maps psd and psd_sum have groups"),
        model("SoftmaxConv", "{mixer: {preset: softmax, conv: 4}}",
              "x.yaml:2:40: model.mixer.conv: 4 on softmax; the softmax layer is the Llama layer: no "
              "convolution, no norm "
              "of q and k"),
        model("SoftmaxNorm", "{mixer: {preset: softmax, qk_norm: rms}}",
              "x.yaml:2:43: model.mixer.qk_norm: rms on softmax; the softmax layer is the Llama layer: no "
              "convolution, no "
              "norm of q and k"),
        model("SoftmaxForm", "{mixer: {preset: softmax, form: chunked}}",
              "x.yaml:2:40: model.mixer.form: chunked on softmax, which has no constant state; expected auto "
              "or quadratic"),
        model("SoftmaxChunk", "{mixer: {preset: softmax, chunk: 32}}",
              "x.yaml:2:41: model.mixer.chunk: softmax has no chunked form; leave out chunk"),
        model("Conv", "{mixer: {preset: kata_m1, conv: 1}}",
              "x.yaml:2:40: model.mixer.conv: expected an integer, 0, or 2 to 8, found '1'"),
        model("Groups", "{head_dim: 66, mixer: {preset: kata_m4}}",
              "x.yaml:2:30: model.mixer.groups: head_dim 66 is not divisible by 4 groups"),
        model("OddHeadRope", "{head_dim: 33, mixer: {preset: softmax}}",
              "x.yaml:2:30: model.mixer.rope: rope turns pairs of coordinates, but head_dim 33 is odd; set "
              "rope: none"),
        model("OddHead", "{head_dim: 33, mixer: {preset: softmax, rope: none}}", ""),
        model("OddGroupRope", "{head_dim: 12, mixer: {preset: kata_s4}}",
              "x.yaml:2:30: model.mixer.rope: rope turns pairs inside a group, but head_dim 12 in 4 groups "
              "gives groups of 3; "
              "set rope: none"),
        model("OddGroup", "{head_dim: 12, mixer: {preset: kata_s4, rope: none}}", ""),
        model("Lorentz", "{head_dim: 1, mixer: {preset: linear_lorentz}}",
              "x.yaml:2:29: model.mixer.map: lorentz needs a head_dim of 2 or more, found 1"),
        model("RopeTrue", "{mixer: {preset: kata_m1, rope: true}}",
              "x.yaml:2:40: model.mixer.rope: expected none or {base: a number}, found 'true'"),
        model("RopeEmpty", "{mixer: {preset: kata_m1, rope: {}}}",
              "x.yaml:2:40: model.mixer.rope: expected none or {base: a number}, found a map"),
        model("RopeBase", "{mixer: {preset: kata_m1, rope: {base: 0}}}",
              "x.yaml:2:47: model.mixer.rope.base: expected a finite number, above 0, found '0'"),
        model("RopeUnknown", "{mixer: {preset: kata_m1, rope: {base: 5, theta: 1}}}",
              "x.yaml:2:50: model.mixer.rope.theta: unknown key; the keys here are base"),
        model("Bool", "{tie_embeddings: yes, mixer: {preset: kata_m1}}",
              "x.yaml:2:25: model.tie_embeddings: expected true or false, found 'yes'"),
        model("QuotedBool", "{tie_embeddings: 'true', mixer: {preset: kata_m1}}",
              "x.yaml:2:25: model.tie_embeddings: expected true or false, found the text 'true'")),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Mixers, DefaultsFollowThePoint) {
  const auto defaults = [](const std::string& preset, const char* norm, bool rope) {
    const MixerConfig m = mixer_of(preset);
    EXPECT_EQ(m.qk_norm, norm) << preset;
    EXPECT_EQ(m.rope_base.has_value(), rope) << preset;
    EXPECT_EQ(m.rope_base.value_or(10000), 10000) << preset;
    EXPECT_EQ(m.conv, 0) << preset;
  };
  defaults("softmax", "none", true);
  defaults("linear_orthant", "rms", false);
  defaults("linear_lorentz", "rms", false);
  for (const char* preset : {"kata_m1", "kata_m2", "kata_m4", "kata_s2", "kata_s4", "hermitian_kata",
                             "quaternionic_kata", "gatedkata_m1", "gatedkata_m2"})
    defaults(preset, "rms", true);
  for (const char* preset : {"deltakata_m1", "deltakata_m2", "gateddeltakata_m1", "gateddeltakata_m2"})
    defaults(preset, "l2", true);
  // The published layers bring a convolution, their own unit keys and no rope.
  for (const char* preset : {"deltanet", "gated_deltanet", "mamba2"}) {
    const MixerConfig m = mixer_of(preset);
    EXPECT_EQ(m.conv, 4) << preset;
    EXPECT_EQ(m.qk_norm, "none") << preset;
    EXPECT_FALSE(m.rope_base) << preset;
    EXPECT_EQ(m.output_gate, m.preset == "gated_deltanet") << preset;
    EXPECT_EQ(m.state, m.preset == "mamba2" ? 128 : 0) << preset;
  }
}

TEST(Mixers, APointSpelledOutIsThePreset) {
  const ConfigFiles files;
  const auto load = [&](const std::string& mixer) {
    return files.load("model: {layers: 1, mixer: " + mixer + "}\ndata: {train: [a.bin]}\n")
        .model.mixers.at(0);
  };
  MixerConfig point = load("{map: psd, groups: 2, read: normalised, conv: 4}");
  EXPECT_EQ(point.preset, "");
  point.preset = "kata_m2";
  const MixerConfig preset = load("{preset: kata_m2, conv: 4}");
  RunConfig a, b;
  a.model.mixers = {point};
  b.model.mixers = {preset};
  EXPECT_EQ(dump(a), dump(b));
  const MixerConfig identity = load("{map: identity, read: raw}");
  EXPECT_EQ(identity.qk_norm, "rms");
  EXPECT_EQ(identity.rope_base, 10000);
  EXPECT_EQ(load("{read: softmax}").qk_norm, "none");
}

TEST(Mixers, ResolveWithoutAFileNamesTheKey) {
  const ConfigFiles files;
  ModelConfig model;
  model.head_dim = 6;
  model.layers = 2;
  model.mixers = {mixer_of("kata_m1")};
  resolve_model(model);
  EXPECT_EQ(model.mixers.size(), 2u);
  model.mixers[1] = mixer_of("kata_m4");
  EXPECT_EQ(files.message([&] { resolve_model(model); }),
            "config: model.mixer.1.groups: head_dim 6 is not divisible by 4 groups");
  EXPECT_EQ(
      files.message([] { mixer_of("kata_n1"); }),
      "unknown mixer 'kata_n1'; did you mean 'kata_m1'? one of softmax, linear_orthant, "
      "linear_lorentz, kata_m1, "
      "kata_m2, kata_m4, kata_s2, kata_s4, hermitian_kata, quaternionic_kata, gatedkata_m1, gatedkata_m2, "
      "deltakata_m1, deltakata_m2, gateddeltakata_m1, gateddeltakata_m2, deltanet, gated_deltanet, mamba2");
}

}  // namespace
}  // namespace kata
