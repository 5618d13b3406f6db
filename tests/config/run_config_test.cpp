#include "config/run_config.h"

#include <limits>

#include "config/config_files.h"

namespace kata {
namespace {

using test::ConfigFiles;
using test::small_config;

TEST(RunConfig, DefaultsAreThoseOfTheDesign) {
  const ConfigFiles files;
  const RunConfig config = files.load("model: {mixer: {preset: kata_m2}}\ndata: {train: [a.bin]}\n");
  EXPECT_EQ(config.model.hidden, 128);
  EXPECT_EQ(config.model.layers, 4);
  EXPECT_EQ(config.model.head_dim, 64);
  EXPECT_EQ(config.model.kv_heads, 2);
  EXPECT_EQ(config.model.mlp, 344);
  EXPECT_EQ(config.model.vocab, 0);
  EXPECT_TRUE(config.model.tie_embeddings);
  EXPECT_EQ(config.model.mixers.size(), 4u);
  EXPECT_EQ(config.data.tokenizer, "bytes");
  EXPECT_EQ(config.train.steps, 400);
  EXPECT_EQ(config.train.rows(), 32);
  EXPECT_EQ(config.train.precision, "fp32");
  EXPECT_EQ(config.optimizer.lr, 1e-3);
  EXPECT_EQ(config.optimizer.betas, (std::array<double, 2>{0.9, 0.95}));
  EXPECT_EQ(config.optimizer.schedule, "cosine");
}

TEST(RunConfig, QuickstartLoads) {
  const RunConfig config = load_run_config(std::string(KATA_SOURCE_DIR) + "/configs/quickstart.yaml", {});
  ASSERT_EQ(config.model.mixers.size(), static_cast<size_t>(config.model.layers));
  EXPECT_EQ(config.model.mixers[0].map, "psd");
}

// One line of YAML under `train:` of the small config, at line 6.
struct Value {
  const char* name;
  std::string line;
  std::string message;  // empty: it loads
};

class RunValue : public ::testing::TestWithParam<Value> {};

TEST_P(RunValue, IsReadOrRejected) {
  const ConfigFiles files;
  EXPECT_EQ(files.error(small_config + GetParam().line), GetParam().message);
}

const std::string seed = "x.yaml:6:9: train.seed: expected an integer, 0 or more, found ";
const std::string clip = "x.yaml:6:9: train.clip: expected a finite number, 0 or more, found ";

INSTANTIATE_TEST_SUITE_P(
    All, RunValue,
    ::testing::Values(
        Value{"Integer", "  seed: 18446744073709551615", ""},
        Value{"TooLarge", "  seed: 18446744073709551616",
              seed + "'18446744073709551616'; that does not fit in 64 bits"},
        Value{"Negative", "  seed: -1", seed + "'-1'"},
        Value{"Exponent", "  seed: 1e3", seed + "'1e3'; write it in digits only"},
        Value{"Point", "  seed: 3.0", seed + "'3.0'; write it in digits only"},
        Value{"Hex", "  seed: 0x10", seed + "'0x10'"}, Value{"LeadingZero", "  seed: 010", seed + "'010'"},
        Value{"Underscore", "  seed: 1_000", seed + "'1_000'"}, Value{"Plus", "  seed: +1", seed + "'+1'"},
        Value{"QuotedNumber", "  seed: '1'", seed + "the text '1'; remove the quotes"},
        Value{"Word", "  seed: one", seed + "'one'"},
        Value{"Nothing", "  seed:", "x.yaml:6:3: train.seed: expected an integer, 0 or more, found nothing"},
        Value{"Null", "  seed: null",
              "x.yaml:6:3: train.seed: expected an integer, 0 or more, found nothing"},
        Value{"True", "  seed: true", seed + "'true'"}, Value{"List", "  seed: [1]", seed + "a list of 1"},
        Value{"Map", "  seed: {a: 1}", seed + "a map"},
        Value{"IntegerOutOfRange", "  sequence: 0",
              "x.yaml:6:13: train.sequence: expected an integer, 1 to 2147483648, found '0'"},
        Value{"Huge", "  max_skips: 9223372036854775808",
              "x.yaml:6:14: train.max_skips: expected an integer, 0 to 1000000000000, found "
              "'9223372036854775808'; that does not fit in 64 bits"},
        Value{"Number", "  clip: 1e-3", ""}, Value{"NumberOfDigits", "  clip: 3", ""},
        Value{"Nan", "  clip: nan", clip + "'nan'"}, Value{"YamlNan", "  clip: .nan", clip + "'.nan'"},
        Value{"Inf", "  clip: inf", clip + "'inf'"}, Value{"YamlInf", "  clip: .inf", clip + "'.inf'"},
        Value{"MinusInf", "  clip: -inf", clip + "'-inf'"},
        Value{"Overflow", "  clip: 1e999", clip + "'1e999'; that does not fit in 64 bits"},
        Value{"BelowZero", "  clip: -0.5", clip + "'-0.5'"},
        Value{"OutlierFactorOne", "  outlier_factor: 1",
              "x.yaml:6:19: train.outlier_factor: expected a finite number, 0, or above 1, found '1'"},
        Value{"OutlierFactor", "  outlier_factor: 1.5", ""},
        Value{
            "Choice", "  recompute: blok",
            "x.yaml:6:14: train.recompute: expected one of none, block, found 'blok'; did you mean 'block'?"},
        Value{"FarChoice", "  recompute: everything",
              "x.yaml:6:14: train.recompute: expected one of none, block, found 'everything'"},
        Value{"ChoiceList", "  recompute: [none]",
              "x.yaml:6:14: train.recompute: expected one of none, block, found a list of 1"},
        Value{"Unknown", "  sede: 1", "x.yaml:6:3: train.sede: unknown key; did you mean 'seed'?"},
        Value{
            "UnknownFar", "  momentum: 1",
            "x.yaml:6:3: train.momentum: unknown key; the keys here are steps, batch_tokens, sequence, seed, "
            "precision, clip, micro_batch, validate_every, validate_batches, checkpoint_every, "
            "keep_checkpoints, "
            "recompute, threads, max_skips, outlier_factor, initial_checkpoint"},
        Value{
            "UnknownUnprintable", "  \"a\\nb\": 1\n  seed: 2\n  clip: x",
            "x.yaml:6:3: train.a\\x0ab: unknown key; the keys here are steps, batch_tokens, sequence, seed, "
            "precision, clip, micro_batch, validate_every, validate_batches, checkpoint_every, "
            "keep_checkpoints, "
            "recompute, threads, max_skips, outlier_factor, initial_checkpoint (and 1 more error in this "
            "config)"},
        Value{"SeveralFirstInTheFile", "  clip: x\n  sede: 1\n  threads: -1",
              clip.substr(0, clip.size()) + "'x' (and 2 more errors in this config)"},
        Value{"NullSection", "optimizer:", "x.yaml:6:1: optimizer: expected a map of keys, found nothing"},
        Value{"UnknownSection", "optimiser: {}",
              "x.yaml:6:1: optimiser: unknown key; did you mean 'optimizer'?"},
        Value{"Betas", "optimizer: {betas: [0.9, 1]}",
              "x.yaml:6:26: optimizer.betas.1: expected a finite number, 0 to below 1, found '1'"},
        Value{"ThreeBetas", "optimizer: {betas: [0.9, 0.9, 0.9]}",
              "x.yaml:6:20: optimizer.betas: expected a list of 2 numbers, found a list of 3"},
        Value{"OneBeta", "optimizer: {betas: 0.9}",
              "x.yaml:6:20: optimizer.betas: expected a list of 2 numbers, found '0.9'"},
        Value{"ZeroLr", "optimizer: {lr: 0}",
              "x.yaml:6:17: optimizer.lr: expected a finite number, above 0, found '0'"},
        // Rules between fields.
        Value{"Sequence", "  batch_tokens: 1000\n  sequence: 300",
              "x.yaml:6:17: train.batch_tokens: 1000 is not a multiple of train.sequence 300"},
        Value{"SequenceAlone", "  sequence: 300",
              "x.yaml:5:3: train.batch_tokens: 8192 is not a multiple of train.sequence 300"},
        Value{"MicroBatch", "  micro_batch: 64",
              "x.yaml:6:16: train.micro_batch: 64 does not divide the 32 rows of a step (batch_tokens / "
              "sequence)"},
        Value{"Precision", "  precision: fp16",
              "x.yaml:6:14: train.precision: expected one of fp32, bf16, fp64, found 'fp16'"},
        Value{"FinalLr", "optimizer: {lr: 1e-5}",
              "x.yaml:6:12: optimizer.final_lr: 0.0001 is above the peak learning rate 1e-05"},
        Value{"FinalLrUnused", "optimizer: {lr: 1e-5, schedule: constant}", ""},
        Value{"DecaySteps", "optimizer: {schedule: cosine, decay_steps: 2}",
              "x.yaml:6:44: optimizer.decay_steps: 2 with schedule cosine; only wsd has a final decay"},
        Value{"DecayStepsTooMany", "optimizer: {schedule: wsd, decay_steps: 4}",
              "x.yaml:6:41: optimizer.decay_steps: 4 is more than the 3 steps of the run"}),
    [](const auto& info) { return std::string(info.param.name); });

struct Section {
  const char* name;
  std::string text;
  std::string message;
};

class RunSections : public ::testing::TestWithParam<Section> {};

TEST_P(RunSections, AreChecked) {
  const ConfigFiles files;
  EXPECT_EQ(files.error(GetParam().text), GetParam().message);
}

const std::string mixer = "model: {mixer: {preset: kata_m1}}\n";
const std::string task = mixer + "data:\n  task: ";

INSTANTIATE_TEST_SUITE_P(
    Data, RunSections,
    ::testing::Values(
        Section{"NoData", mixer,
                "x.yaml: data.train: nothing to train on; give token files in data.train, or a data.task"},
        Section{
            "EmptyTrain", mixer + "data: {train: []}",
            "x.yaml:2:15: data.train: nothing to train on; give token files in data.train, or a data.task"},
        Section{"TrainIsText", mixer + "data: {train: a.bin}",
                "x.yaml:2:15: data.train: expected a list of texts, found 'a.bin'"},
        Section{
            "TrainHoldsNumber", mixer + "data: {train: [a.bin, 12]}",
            "x.yaml:2:23: data.train.1: expected text, found '12'; put it in quotes if it is meant as text"},
        Section{"TrainHoldsTrue", mixer + "data: {train: [true]}",
                "x.yaml:2:16: data.train.0: expected text, found 'true'; put it in quotes if it is meant as "
                "text"},
        Section{"TrainHoldsNull", mixer + "data: {train: [~]}",
                "x.yaml:2:16: data.train.0: expected text, found nothing"},
        Section{"TrainHoldsEmpty", mixer + "data: {train: ['']}",
                "x.yaml:2:16: data.train.0: expected text, found the text ''"},
        Section{"TrainHoldsControl", mixer + "data: {train: [\"a\\0b\"]}",
                "x.yaml:2:16: data.train.0: expected text, found the text 'a\\x00b'"},
        Section{"Both",
                mixer + "data: {train: [a.bin], task: {segments: [{length: 64, pairs: 4, examples: 9}]}}",
                "x.yaml:2:15: data.train: given beside data.task; leave out one of the two"},
        Section{
            "BothValidation",
            mixer + "data: {validation: [a.bin], task: {segments: [{length: 64, pairs: 4, examples: 9}]}}",
            "x.yaml:2:20: data.validation: given beside data.task, which makes its own; leave it out"},
        Section{"BothTokenizer",
                mixer + "data: {tokenizer: t.model, task: {segments: [{length: 64, pairs: 4, examples: 9}]}}",
                "x.yaml:2:19: data.tokenizer: given beside data.task, which makes token ids; leave it out"},
        Section{
            "TaskDocuments",
            mixer + "data: {document_token: 3, task: {segments: [{length: 64, pairs: 4, examples: 9}]}}",
            "x.yaml:2:24: data.document_token: given beside data.task, whose examples stand alone; leave it "
            "out"},
        Section{"UnknownTask", task + "{name: mqra}",
                "x.yaml:3:16: data.task.name: expected one of mqar, overwrite, found 'mqra'; did you mean "
                "'mqar'?"},
        Section{"NoSegments", task + "{name: mqar}",
                "x.yaml:3:9: data.task.segments: empty; give a list such as [{length: 64, pairs: 4, "
                "examples: 1000}]"},
        Section{"SegmentsIsMap", task + "{segments: {length: 64}}",
                "x.yaml:3:20: data.task.segments: expected a list (training examples, in this order), found "
                "a map"},
        Section{"SegmentIsNumber", task + "{segments: [64]}",
                "x.yaml:3:21: data.task.segments.0: expected a map of keys, found '64'"},
        Section{
            "SegmentWithoutPairs", task + "{segments: [{length: 64, examples: 5}]}",
            "x.yaml:3:21: data.task.segments.0.pairs: is missing: key-value pairs; 4 pairs fit in length"},
        Section{
            "OddLength",
            task + "{segments: [{length: 64, pairs: 4, examples: 5}, {length: 63, pairs: 4, examples: 5}]}",
            "x.yaml:3:67: data.task.segments.1.length: 63 is odd; mqar needs an even length"},
        Section{
            "Pairs", task + "{segments: [{length: 64, pairs: 17, examples: 5}]}",
            "x.yaml:3:41: data.task.segments.0.pairs: 17 pairs do not fit in length 64; expected at most 16"},
        Section{"Vocab", task + "{vocab: 64, segments: [{length: 64, pairs: 4, examples: 5}]}",
                "x.yaml:3:41: data.task.segments.0.length: 64 is not below the task's vocabulary of 64"},
        Section{"ModelVocab",
                "model: {vocab: 100, mixer: {preset: kata_m1}}\ndata:\n  task: {segments: [{length: 64, "
                "pairs: 4, examples: 5}]}",
                "x.yaml:1:16: model.vocab: 100 is smaller than the task's vocabulary of 8192"},
        Section{"TaskSequence",
                task + "{segments: [{length: 512, pairs: 4, examples: 5}]}\ntrain: {sequence: 256}",
                "x.yaml:4:19: train.sequence: 256 is shorter than the longest segment of data.task, 512"},
        Section{"Good", task + "{segments: [{length: 64, pairs: 16, examples: 5}]}", ""},
        Section{"RewritesOfMqar", task + "{segments: [{length: 64, pairs: 4, examples: 5, rewrites: 2}]}",
                "x.yaml:3:67: data.task.segments.0.rewrites: 2 with task mqar, which binds every key once; "
                "leave it "
                "out, or name overwrite"},
        Section{"RewrittenOfMqar", task + "{segments: [{length: 64, pairs: 4, examples: 5, rewritten: 2}]}",
                "x.yaml:3:68: data.task.segments.0.rewritten: 2 with task mqar, which binds every key once; "
                "leave "
                "it out, or name overwrite"},
        Section{"LayoutOfMqar", task + "{segments: [{length: 64, pairs: 4, examples: 5, layout: block}]}",
                "x.yaml:3:65: data.task.segments.0.layout: block with task mqar, which binds every key once; "
                "leave "
                "it out, or name overwrite"}),
    [](const auto& info) { return std::string(info.param.name); });

// A segment of overwrite, whose text begins in column 44.
Section overwrite(const char* name, const std::string& segment, const std::string& message) {
  return {name,
          "model: {mixer: {preset: kata_m1}}\ndata: {task: {name: overwrite, segments: [{" + segment + "}]}}",
          message.empty() ? "" : "x.yaml:2:" + message};
}

INSTANTIATE_TEST_SUITE_P(
    Overwrite, RunSections,
    ::testing::Values(
        overwrite("Defaults", "length: 64, pairs: 4, examples: 5", ""),
        overwrite("JustFits", "length: 64, pairs: 8, examples: 5, rewrites: 2", ""),
        overwrite(
            "TooLong", "length: 64, pairs: 8, examples: 5, rewrites: 3",
            "63: data.task.segments.0.pairs: 32 bindings and 8 questions take 80 tokens, which do not fit in "
            "length 64; expected 2 * (pairs + rewrites * rewritten) + 2 * pairs of at most the length"),
        overwrite(
            "Huge", "length: 64, pairs: 536870912, examples: 5, rewrites: 536870912",
            "63: data.task.segments.0.pairs: 288230376688582656 bindings and 536870912 questions take "
            "576460754450907136 tokens, which do not fit in length 64; expected 2 * (pairs + rewrites * "
            "rewritten) + 2 * pairs of at most the length"),
        overwrite("MoreThanPairs", "length: 64, pairs: 4, examples: 5, rewritten: 5",
                  "90: data.task.segments.0.rewritten: 5 rewritten keys, but there are 4 pairs"),
        overwrite("NoRewrite", "length: 64, pairs: 4, examples: 5, rewrites: 0",
                  "89: data.task.segments.0.rewrites: expected an integer, 1 to 536870912, found '0'"),
        overwrite("NobodyRewritten", "length: 64, pairs: 4, examples: 5, rewritten: 0",
                  "90: data.task.segments.0.rewritten: expected an integer, 1 to 536870912, found '0'"),
        overwrite(
            "UnknownLayout", "length: 64, pairs: 4, examples: 5, layout: blocks",
            "87: data.task.segments.0.layout: expected one of block, interleaved, zoology, found 'blocks'; "
            "did you mean 'block'?"),
        overwrite("ZoologyHasOneRewrite", "length: 64, pairs: 4, examples: 5, rewrites: 2, layout: zoology",
                  "89: data.task.segments.0.rewrites: 2 with layout zoology, which has exactly 1"),
        overwrite("OddLength", "length: 63, pairs: 4, examples: 5",
                  "52: data.task.segments.0.length: 63 is odd; overwrite needs an even length"),
        overwrite("Vocab", "length: 8192, pairs: 4, examples: 5",
                  "52: data.task.segments.0.length: 8192 is not below the task's vocabulary of 8192")),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RunConfig, ACheckpointsModelNeedsNoData) {
  const ConfigFiles files;
  files.write("config.yaml", "model: {norm_eps: 1e-5, mixer: {preset: softmax}}\ndata: {train: []}\n");
  const std::string path = files.path("config.yaml");
  const RunConfig config = load_checkpoint_config(path.substr(0, path.rfind('/')));
  EXPECT_EQ(config.model.norm_eps, 1e-5);
  EXPECT_TRUE(config.data.train.empty());
  EXPECT_NE(files.message([&] { load_run_config(path, {}); }), "");
}

TEST(RunConfig, TheInitialCheckpointMayBeLeftOut) {
  const ConfigFiles files;
  const std::string rest = "model: {mixer: {preset: softmax}}\ndata: {train: [a.bin]}\n";
  const RunConfig none = files.load(rest), empty = files.load(rest + "train: {initial_checkpoint: ''}\n");
  EXPECT_EQ(none.train.initial_checkpoint, "");
  EXPECT_TRUE(differences(none, empty).empty());
  EXPECT_EQ(dump(none).find("initial_checkpoint"), std::string::npos);
  EXPECT_EQ(files.load(rest + "train: {initial_checkpoint: runs/a}\n").train.initial_checkpoint, "runs/a");
  EXPECT_NE(files.error(rest + "train: {initial_checkpoint: 7}\n"), "");
}

TEST(Resume, OnlyLengthAndLoggingMayDiffer) {
  EXPECT_TRUE(may_differ_on_resume("train.steps"));
  EXPECT_TRUE(may_differ_on_resume("logging.every"));
  for (const char* key :
       {"train.seed", "train.steps_more", "model.layers", "optimizer.lr", "data.train", "logging"})
    EXPECT_FALSE(may_differ_on_resume(key)) << key;
}

TEST(Differences, ListEveryKeyWithBothValues) {
  const ConfigFiles files;
  const RunConfig a = files.load("model: {layers: 2, mixer: {preset: kata_m1}}\ndata: {train: [a.bin]}\n");
  RunConfig b = a;
  EXPECT_TRUE(differences(a, b).empty());
  b.model.mixers[1] = mixer_of("softmax");
  b.optimizer.lr = std::nextafter(a.optimizer.lr, 1);
  b.data.train = {"b.bin", "c.bin"};
  b.model.layers = 3;
  std::vector<std::string> lines;
  for (const ConfigDifference& d : differences(a, b)) lines.push_back(d.key + ": " + d.a + " | " + d.b);
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "model.layers: 2 | 3", "model.mixer.1.preset: kata_m1 | softmax",
                       "model.mixer.1.map: psd | (absent)", "model.mixer.1.read: normalised | softmax",
                       "model.mixer.1.qk_norm: rms | none", "data.train: [a.bin] | [b.bin, c.bin]",
                       "optimizer.lr: 0.001 | 0.0010000000000000002"}));
  const auto back = differences(b, a);
  ASSERT_EQ(back.size(), lines.size());
  EXPECT_EQ(back.back().key, "model.mixer.1.map");
  EXPECT_EQ(back.back().a, "(absent)");
}

}  // namespace
}  // namespace kata
