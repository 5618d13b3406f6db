#include "config/model_config.h"

namespace kata {
namespace {

// One mixer under its dotted key, with what its checks share.
struct MixerCheck {
  const MixerConfig& mixer;
  const int64_t head_dim;
  const std::string key;
  const Origins& origins;

  std::string at(const char* field) const { return key + "." + field; }

  template <class T>
  void agrees(const char* field, const T& value, const T& row) const {
    if (value != row)
      origins.reject(at(field), "'{}' contradicts preset {}, which has '{}'; leave out one of the two", value,
                     mixer.preset, row);
  }

  void point() const {
    if (const Preset* row = find_preset(mixer.preset)) {
      agrees<std::string>("map", mixer.map, row->map);
      agrees<int64_t>("groups", mixer.groups, row->groups);
      agrees<std::string>("update", mixer.update, row->update);
      agrees<std::string>("decay", mixer.decay, row->decay);
      agrees<std::string>("read", mixer.read, row->read);
    } else if (!mixer.preset.empty()) {
      mixer_of(mixer.preset);  // says what the names are
    }
    if (mixer.read.empty())
      origins.reject(key, "no mixer; give preset (one of {}), or map and read", joined(preset_names()));
    if (mixer.softmax() && !mixer.map.empty())
      origins.reject(at("map"), "'{}' with read softmax, which has no feature map; leave out map", mixer.map);
    if (!mixer.softmax() && mixer.map.empty())
      origins.reject(key, "read '{}' needs a map; one of {}", mixer.read, joined(map_names()));
    if (mixer.groups != 1 && !has_groups(mixer.map))
      origins.reject(at("groups"), "{} groups, but only the maps psd and psd_sum have groups", mixer.groups);
    if (mixer.map == "identity" && mixer.read == "normalised")
      origins.reject(at("read"), "normalised with map identity, whose scores have either sign; expected raw");
    if (mixer.delta() && mixer.read == "normalised")
      origins.reject(
          at("read"),
          "normalised with update delta, whose weights have either sign and no mass; expected raw");
    if (mixer.softmax() && mixer.delta())
      origins.reject(at("update"), "delta with read softmax, which keeps no state to correct; leave it out");
    if (mixer.softmax() && mixer.decays())
      origins.reject(at("decay"), "scalar with read softmax, which keeps no state that fades; leave it out");
    if (!mixer.delta() && mixer.delta_scale != 1)
      origins.reject(at("delta_scale"), "{} with update add; it scales the products of the delta rule",
                     mixer.delta_scale);
    if (!mixer.mamba2() && mixer.state != 0)
      origins.reject(at("state"), "{}, but only preset mamba2 has keys of their own width; leave it out",
                     mixer.state);
  }

  void forms() const {
    if (!mixer.delta()) return;
    if (mixer.form == "quadratic")
      origins.reject(at("form"), "quadratic with update delta; expected auto, chunked or recurrent");
    if (mixer.chunk > 64)
      origins.reject(at("chunk"),
                     "{} with update delta, which solves a system of this size; expected at most 64",
                     mixer.chunk);
  }

  void mamba2(int64_t hidden) const {
    constexpr const char* why = "the Mamba-2 layer has no norm of keys, no rope and a gate of its own";
    if (mixer.qk_norm != "none") origins.reject(at("qk_norm"), "{} on mamba2; {}", mixer.qk_norm, why);
    if (mixer.rope_base) origins.reject(at("rope"), "given on mamba2; {}", why);
    if (mixer.output_gate) origins.reject(at("output_gate"), "true on mamba2; {}", why);
    if (mixer.conv == 0) origins.reject(at("conv"), "0 on mamba2, which has a convolution; expected 2 to 8");
    if (mixer.state == 0)
      origins.reject(at("state"), "0 on mamba2; expected the width of its keys, 1 or more");
    if (2 * hidden % head_dim != 0)
      origins.reject(key, "mamba2 cuts 2 x hidden = {} into heads of head_dim {}; expected a divisor",
                     2 * hidden, head_dim);
  }

  // MATH: the softmax layer is the Llama layer, so that it stays the baseline that papers compare with.
  void softmax() const {
    constexpr const char* why = "the softmax layer is the Llama layer: no convolution, no norm of q and k";
    if (mixer.conv != 0) origins.reject(at("conv"), "{} on softmax; {}", mixer.conv, why);
    if (mixer.qk_norm != "none") origins.reject(at("qk_norm"), "{} on softmax; {}", mixer.qk_norm, why);
    if (mixer.output_gate) origins.reject(at("output_gate"), "true on softmax; {}, no gate", why);
    if (mixer.form != "auto" && mixer.form != "quadratic")
      origins.reject(at("form"), "{} on softmax, which has no constant state; expected auto or quadratic",
                     mixer.form);
    if (mixer.chunk != MixerConfig().chunk)
      origins.reject(at("chunk"), "softmax has no chunked form; leave out chunk");
  }

  void widths() const {
    const bool grouped = has_groups(mixer.map);
    const int64_t group = head_dim / mixer.groups;
    if (head_dim % mixer.groups != 0)
      origins.reject(at("groups"), "head_dim {} is not divisible by {} groups", head_dim, mixer.groups);
    if (mixer.map == "lorentz" && head_dim < 2)
      origins.reject(at("map"), "lorentz needs a head_dim of 2 or more, found {}", head_dim);
    const int64_t parts = mixer.map == "hermitian" ? 2 : mixer.map == "quaternionic" ? 4 : 1;
    if (head_dim % parts != 0)
      origins.reject(at("map"), "{} takes {} coordinates as one number, but head_dim is {}", mixer.map, parts,
                     head_dim);
    if (mixer.rope_base && head_dim % 2 != 0)
      origins.reject(at("rope"), "rope turns pairs of coordinates, but head_dim {} is odd; set rope: none",
                     head_dim);
    if (mixer.rope_base && grouped && group % 2 != 0)
      origins.reject(at("rope"),
                     "rope turns pairs inside a group, but head_dim {} in {} groups gives groups of {}; "
                     "set rope: none",
                     head_dim, mixer.groups, group);
  }
};

}  // namespace

void MixerConfig::take_point() {
  const Preset* row = find_preset(preset);
  if (!row) return;
  map = row->map;
  groups = row->groups;
  update = row->update;
  decay = row->decay;
  read = row->read;
}

void MixerConfig::take_defaults() {
  constexpr double base = 10000;
  const bool deltanet = map == "identity" && delta();
  conv = deltanet || mamba2() ? 4 : 0;
  qk_norm = softmax() || deltanet || mamba2() ? "none" : delta() ? "l2" : "rms";
  // RoPE leaves the scores of orthant and lorentz dependent on absolute positions.
  const bool rope = map != "orthant" && map != "lorentz" && !deltanet && !mamba2();
  rope_base = rope ? std::optional(base) : std::nullopt;
  output_gate = deltanet && decays();
  state = mamba2() ? 128 : 0;
}

std::vector<MixerConfig> MixerConfig::examples() {
  std::vector<MixerConfig> all;
  for (const std::string& name : preset_names()) all.push_back(mixer_of(name));
  return all;
}

MixerConfig mixer_of(const std::string& preset) {
  if (!find_preset(preset)) {
    const std::string near = nearest_name(preset, preset_names());
    fail(ExitCode::usage, "unknown mixer '{}'; {}one of {}", preset,
         near.empty() ? "" : fmt::format("did you mean '{}'? ", near), joined(preset_names()));
  }
  MixerConfig mixer;
  mixer.preset = preset;
  mixer.take_point();
  mixer.take_defaults();
  return mixer;
}

void resolve_model(ModelConfig& model, const std::string& model_key, const std::string& mixer_key,
                   const Origins& origins) {
  const auto key = [&](const char* field) { return model_key + "." + field; };
  if (model.head_dim == 0) {
    if (model.hidden % model.heads != 0)
      origins.reject(key("heads"),
                     "hidden {} is not divisible by {} heads; change one of them or give head_dim",
                     model.hidden, model.heads);
    model.head_dim = model.hidden / model.heads;
  }
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.heads % model.kv_heads != 0)
    origins.reject(key("kv_heads"), "{} heads are not divisible by {} kv_heads", model.heads, model.kv_heads);
  if (model.mixers.empty())
    origins.reject(mixer_key,
                   "no mixer; give one, such as mixer: {{preset: kata_m2}}, or a list with one per layer");

  const bool one_for_all = model.mixers.size() == 1 && !origins.given(mixer_key + ".0");
  const size_t layers = static_cast<size_t>(model.layers);
  if (!one_for_all && model.mixers.size() != layers)
    origins.reject(mixer_key,
                   "a list of {} mixers for {} layers; give one per layer, or a single map for all",
                   model.mixers.size(), model.layers);
  for (size_t i = 0; i < model.mixers.size(); ++i) {
    const std::string item = one_for_all ? mixer_key : fmt::format("{}.{}", mixer_key, i);
    const MixerCheck check{model.mixers[i], model.head_dim, item, origins};
    check.point();
    check.forms();
    if (model.mixers[i].softmax()) check.softmax();
    if (model.mixers[i].mamba2())
      check.mamba2(model.hidden);
    else
      check.widths();
  }
  if (one_for_all) model.mixers.assign(layers, MixerConfig(model.mixers[0]));
}

}  // namespace kata
