// The tables as a whole: every key is read, written, compared and documented.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "config/config_files.h"
#include "config/table_writer.h"

namespace kata {
namespace {

using test::ConfigFiles;

// Walks a config's table and gives each key another allowed value, as YAML.
class Alternatives {
 public:
  static constexpr bool reading = false;
  std::vector<std::pair<std::string, std::string>>
      values;  // dotted key, value; empty where there is no other

  template <class T>
  static std::vector<std::pair<std::string, std::string>> of(T config) {
    Alternatives visitor;
    config.visit(visitor);
    return visitor.values;
  }

  template <class T>
  void field(const char* key, T& value, const Range<T>& range, const char*) {
    if constexpr (std::is_same_v<T, int64_t>)
      if (is_absent(value, range)) return;
    for (const T candidate :
         {static_cast<T>(value * 2), static_cast<T>(value + 1), static_cast<T>(value / 2), T{2}})
      if (candidate != value && range.contains(candidate)) return add(key, fmt::format("{}", candidate));
    add(key, "");
  }
  void field(const char* key, std::array<double, 2>& value, const Range<double>&, const char*) {
    add(key, fmt::format("[{}, {}]", value[0] / 2, value[1]));
  }
  void field(const char* key, std::vector<double>& value, const Range<double>&, const char*) {
    add(key, fmt::format("[{}, {}]", value.at(0), value.at(0) / 2));
  }
  void field(const char* key, bool& value, const char*) { add(key, value ? "false" : "true"); }
  void field(const char* key, std::string& value, const Words& words, const char*) {
    if (words.names.empty()) return add(key, "other.model");
    for (const std::string& name : words.names)
      if (name != value) return add(key, name);
    add(key, "");
  }
  void field(const char* key, std::vector<std::string>& value, const Words&, const char*) {
    add(key, value.empty() ? "[z.bin]" : "[y.bin, z.bin]");
  }
  void switched(const char* key, const char* inner, std::optional<double>& value, const Range<double>&,
                const char*) {
    add(key, value ? "none" : fmt::format("{{{}: 7}}", inner));
  }
  template <class T, class Rule>
  void required(const char* key, T& value, const Rule& rule, const char* help) {
    field(key, value, rule, help);
  }
  template <class T>
  void section(const char* key, T& value, const char*) {
    const std::string outside = prefix_;
    prefix_ += std::string(key) + ".";
    value.visit(*this);
    prefix_ = outside;
  }
  template <class T>
  void optional_section(const char* key, std::optional<T>& value, const char* help) {
    if (value) section(key, *value, help);
  }
  template <class T>
  void list(const char* key, std::vector<T>& items, const char* help) {
    for (size_t i = 0; i < items.size(); ++i)
      section((std::string(key) + "." + std::to_string(i)).c_str(), items[i], help);
  }
  template <class T>
  void one_or_list(const char* key, std::vector<T>& values, const char* help) {
    section(key, values.at(0), help);  // the configs below give a single map
  }

 private:
  void add(const char* key, const std::string& value) { values.emplace_back(prefix_ + key, value); }
  std::string prefix_;
};

// Keys whose other value needs company, or a value that the walk cannot guess.
struct Special {
  std::string value;
  std::vector<std::string> company;
};
using Specials = std::map<std::string, Special>;

// Loads `text` once as it is and once for every key with another value; the key must change, in the dump too,
// and what is dumped must load to the same. Returns the keys, indexes left out; those without another value
// go to `fixed`.
template <class Load>
std::set<std::string> toggle(const ConfigFiles& files, const std::string& text, const Specials& specials,
                             Load&& load, std::set<std::string>& fixed) {
  const std::string path = files.write("toggle.yaml", text);
  const auto base = load(path, std::vector<std::string>{});
  const std::string base_dump = dump(base);
  std::set<std::string> keys;
  for (auto [key, value] : Alternatives::of(base)) {
    std::string plain_key;
    std::istringstream parts(key);
    for (std::string part; std::getline(parts, part, '.');)
      plain_key += part.find_first_not_of("0123456789") == std::string::npos
                       ? "[]"
                       : (plain_key.empty() ? "" : ".") + part;
    keys.insert(plain_key);
    std::vector<std::string> overrides;
    if (const auto special = specials.find(key); special != specials.end()) {
      value = special->second.value;
      overrides = special->second.company;
    }
    if (value.empty()) {
      fixed.insert(plain_key);
      continue;
    }
    const std::string without = dump(load(path, overrides));
    overrides.push_back(key + "=" + value);
    SCOPED_TRACE(overrides.back());
    const auto changed = load(path, overrides);
    const std::string text_of_it = dump(changed);
    EXPECT_NE(text_of_it, base_dump);
    EXPECT_NE(text_of_it, without) << "the key itself changes nothing";
    EXPECT_EQ(dump(load(files.write("again.yaml", text_of_it), {})), text_of_it);
  }
  return keys;
}

// Keys of the reference that hold a value themselves.
std::set<std::string> documented(const std::string& reference) {
  std::set<std::string> keys;
  std::istringstream lines(reference);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const bool container =
        line.find("| a map") != std::string::npos || line.find("| a list of maps") != std::string::npos;
    if (!container) keys.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return keys;
}

TEST(Table, EveryKeyOfARunChangesItAndIsDocumented) {
  const ConfigFiles files;
  const auto load = [](const std::string& path, const std::vector<std::string>& overrides) {
    const RunConfig config = load_run_config(path, overrides);
    // What is compared is the config, not its text alone.
    EXPECT_TRUE(differences(config, config).empty());
    return config;
  };
  std::set<std::string> fixed;
  const std::string rest =
      "train: {steps: 1000, batch_tokens: 8192, sequence: 256, outlier_factor: 4}\n"
      "optimizer: {schedule: wsd, decay_steps: 10}\n";
  std::set<std::string> keys = toggle(
      files,
      "model: {mixer: {preset: kata_m2, conv: 4}}\ndata: {train: [a.bin], validation: [v.bin]}\n" + rest,
      {{"model.kv_heads", {"1", {}}},
       {"model.mixer.preset", {"kata_m4", {}}},
       {"model.mixer.map", {"", {}}},  // a contradiction beside a preset: below without one
       {"model.mixer.groups", {"", {}}},
       {"model.mixer.read", {"", {}}},
       {"model.mixer.update", {"", {}}},
       {"model.mixer.decay", {"", {}}},
       {"model.mixer.delta_scale", {"", {}}},  // of the delta rule
       {"model.mixer.state", {"", {}}},        // of mamba2
       {"optimizer.schedule", {"cosine", {"optimizer.decay_steps=0"}}}},
      load, fixed);
  for (const char* key : {"model.mixer.map", "model.mixer.groups", "model.mixer.read", "model.mixer.update",
                          "model.mixer.decay", "model.mixer.delta_scale", "model.mixer.state"})
    fixed.erase(key);
  keys.merge(toggle(
      files, "model: {mixer: {map: psd, groups: 2, read: normalised}}\ndata: {train: [a.bin]}\n" + rest,
      {{"model.kv_heads", {"1", {}}},
       {"model.mixer.preset", {"kata_m2", {}}},
       {"model.mixer.map", {"psd_sum", {}}},
       {"model.mixer.read", {"raw", {}}},
       {"model.mixer.update", {"delta", {"model.mixer.read=raw"}}},
       {"model.mixer.delta_scale", {"0.5", {"model.mixer.update=delta", "model.mixer.read=raw"}}},
       {"model.mixer.state", {"", {}}},
       {"optimizer.schedule", {"cosine", {"optimizer.decay_steps=0"}}}},
      load, fixed));
  keys.merge(toggle(files,
                    "model: {mixer: {preset: kata_m1}}\n"
                    "data: {task: {segments: [{length: 64, pairs: 4, examples: 100}, {length: 128, pairs: 8, "
                    "examples: 5}]}}\n" +
                        rest,
                    {{"model.kv_heads", {"1", {}}},
                     {"model.mixer.preset", {"kata_m4", {}}},
                     {"data.tokenizer", {"", {}}},  // a task has none
                     {"data.train", {"", {}}},
                     {"data.validation", {"", {}}},
                     {"model.mixer.map", {"", {}}},
                     {"model.mixer.groups", {"", {}}},
                     {"model.mixer.read", {"", {}}},
                     {"model.mixer.update", {"", {}}},
                     {"model.mixer.decay", {"", {}}},
                     {"model.mixer.delta_scale", {"", {}}},
                     {"model.mixer.state", {"", {}}},
                     {"data.document_token", {"", {}}},
                     {"data.task.segments.0.layout", {"", {}}},  // mqar has none
                     {"data.task.segments.1.layout", {"", {}}},
                     {"optimizer.schedule", {"cosine", {"optimizer.decay_steps=0"}}}},
                    load, fixed));
  std::set<std::string> of_overwrite;
  keys.merge(
      toggle(files,
             "model: {vocab: 9000, mixer: {preset: softmax}}\n"
             "data: {task: {name: overwrite, segments: [{length: 64, pairs: 4, rewrites: 2, rewritten: 2, "
             "examples: 100}]}}\n",
             {{"data.task.name", {"", {}}},  // mqar has no rewrites
              {"data.tokenizer", {"", {}}},
              {"data.train", {"", {}}},
              {"data.validation", {"", {}}},
              {"data.task.vocab", {"100", {}}},
              {"model.vocab", {"", {}}},
              {"model.kv_heads", {"1", {}}},
              {"model.mixer.preset", {"kata_m4", {}}},
              {"model.mixer.map", {"", {}}},
              {"model.mixer.groups", {"", {}}},
              {"model.mixer.read", {"", {}}},
              {"model.mixer.conv", {"", {}}},
              {"model.mixer.qk_norm", {"", {}}},
              {"model.mixer.update", {"", {}}},
              {"model.mixer.decay", {"", {}}},
              {"model.mixer.output_gate", {"", {}}},
              {"model.mixer.delta_scale", {"", {}}},
              {"model.mixer.state", {"", {}}},
              {"data.document_token", {"", {}}},
              {"model.mixer.form", {"quadratic", {}}},
              {"model.mixer.chunk", {"", {}}},
              {"train.outlier_factor", {"2", {}}},
              {"optimizer.final_lr", {"1e-5", {}}},
              {"optimizer.decay_steps", {"7", {"optimizer.schedule=wsd"}}}},
             load, of_overwrite));
  EXPECT_FALSE(of_overwrite.contains("data.task.segments[].layout"));
  EXPECT_EQ(keys, documented(config_reference()));
  // Later work adds values to these; nothing else may be stuck.
  for (const char* key :
       {"data.tokenizer", "data.train", "data.validation", "model.mixer.map", "model.mixer.groups",
        "model.mixer.read", "model.mixer.update", "model.mixer.decay", "model.mixer.delta_scale",
        "model.mixer.state", "data.document_token", "data.task.segments[].layout"})
    fixed.erase(key);
  EXPECT_EQ(fixed, std::set<std::string>());
}

const char* const suite_text =
    "suite: mqar\n"
    "model: {layers: 2, mlp: 256}\n"
    "models:\n"
    "  - {name: a, mixer: {preset: softmax}}\n"
    "  - {name: b, mixer: {map: psd, groups: 2, read: normalised, conv: 4}}\n"
    "task: {segments: [{length: 64, pairs: 4, examples: 1000}]}\n"
    "evaluation: [{length: 256, pairs: 16, examples: 10}]\n"
    "train: {batch: 64}\n"
    "optimizer: {schedule: wsd, decay_steps: 10}\n";

TEST(Table, EveryKeyOfASuiteChangesItAndIsDocumented) {
  const ConfigFiles files;
  const auto load = [](const std::string& path, const std::vector<std::string>& overrides) {
    return load_suite_config(path, false, overrides);
  };
  std::set<std::string> fixed;
  std::set<std::string> keys = toggle(
      files, suite_text,
      {{"model.kv_heads", {"1", {}}},
       {"optimizer.final_lr", {"1e-5", {}}},
       {"train.steps", {"100", {}}},
       {"optimizer.schedule", {"cosine", {"optimizer.decay_steps=0"}}},
       {"models.0.steps", {"100", {}}},
       {"models.1.steps", {"100", {}}},
       {"models.0.mixer.preset", {"kata_m2", {}}},
       {"models.0.mixer.map", {"", {}}},
       {"models.0.mixer.groups", {"", {}}},
       {"models.0.mixer.read", {"", {}}},
       {"models.0.mixer.conv", {"", {}}},
       {"models.0.mixer.qk_norm", {"", {}}},
       {"models.0.mixer.update", {"", {}}},
       {"models.0.mixer.decay", {"", {}}},
       {"models.0.mixer.output_gate", {"", {}}},
       {"models.0.mixer.delta_scale", {"", {}}},
       {"models.0.mixer.state", {"", {}}},
       {"models.0.mixer.form", {"quadratic", {}}},
       {"models.0.mixer.chunk", {"", {}}},
       {"models.1.mixer.preset", {"kata_m2", {}}},
       {"models.1.mixer.map", {"psd_sum", {}}},
       {"models.1.mixer.read", {"raw", {}}},
       {"models.1.mixer.update", {"delta", {"models.1.mixer.read=raw"}}},
       {"models.1.mixer.delta_scale", {"0.5", {"models.1.mixer.update=delta", "models.1.mixer.read=raw"}}},
       {"models.1.mixer.state", {"", {}}},
       {"task.segments.0.layout", {"", {}}},  // mqar has none
       {"evaluation.0.layout", {"", {}}}},
      load, fixed);
  fixed.clear();
  const auto give = [](const std::string& text, const std::string& place, const std::string& more) {
    std::string all = text;
    return all.insert(all.find(place) + place.size(), more);
  };
  std::string overwrite = give(suite_text, "task: {", "name: overwrite, ");
  for (const char* pairs : {"pairs: 4, ", "pairs: 16, "})
    overwrite = give(overwrite, pairs, "rewrites: 2, rewritten: 2, layout: interleaved, ");
  keys.merge(toggle(files, overwrite,
                    {{"task.name", {"", {}}},  // mqar has no rewrites
                     {"task.segments.0.layout", {"block", {}}},
                     {"model.kv_heads", {"1", {}}},
                     {"optimizer.final_lr", {"1e-5", {}}},
                     {"train.steps", {"100", {}}},
                     {"optimizer.schedule", {"cosine", {"optimizer.decay_steps=0"}}},
                     {"models.0.steps", {"100", {}}},
                     {"models.1.steps", {"100", {}}},
                     {"models.0.mixer.preset", {"", {}}},
                     {"models.0.mixer.map", {"", {}}},
                     {"models.0.mixer.groups", {"", {}}},
                     {"models.0.mixer.read", {"", {}}},
                     {"models.0.mixer.conv", {"", {}}},
                     {"models.0.mixer.qk_norm", {"", {}}},
                     {"models.0.mixer.update", {"", {}}},
                     {"models.0.mixer.decay", {"", {}}},
                     {"models.0.mixer.output_gate", {"", {}}},
                     {"models.0.mixer.delta_scale", {"", {}}},
                     {"models.0.mixer.state", {"", {}}},
                     {"models.1.mixer.update", {"", {}}},
                     {"models.1.mixer.decay", {"", {}}},
                     {"models.1.mixer.output_gate", {"", {}}},
                     {"models.1.mixer.delta_scale", {"", {}}},
                     {"models.1.mixer.state", {"", {}}},
                     {"models.0.mixer.form", {"", {}}},
                     {"models.0.mixer.chunk", {"", {}}},
                     {"models.1.mixer.preset", {"", {}}},
                     {"models.1.mixer.map", {"", {}}},
                     {"models.1.mixer.read", {"", {}}}},
                    load, fixed));
  for (const char* key : {"task.segments[].layout", "evaluation[].layout", "task.segments[].rewrites"})
    EXPECT_FALSE(fixed.contains(key)) << key;
  EXPECT_EQ(keys, documented(suite_reference()));
}

TEST(Table, TheReadmeHoldsTheReference) {
  std::ifstream in(std::string(KATA_SOURCE_DIR) + "/configs/README.md");
  std::stringstream readme;
  readme << in.rdbuf();
  for (const std::string& reference : {config_reference(), suite_reference()})
    EXPECT_NE(readme.str().find(reference), std::string::npos) << "configs/README.md should hold:\n"
                                                               << reference;
}

TEST(Dump, LoadsToTheEqualConfigAndReadsAsTheFile) {
  const ConfigFiles files;
  RunConfig config = files.load(
      "model: {layers: 2, mixer: [{preset: softmax, rope: none}, {preset: kata_s2, rope: {base: 500000}}]}\n"
      "data: {tokenizer: 'it''s \"q\\\\ # x', train: [a/*.bin, '*.bin', '-1', 'true', 'NaN', 'inf', "
      "'Infinity', 'info', 'null', '0x1', 'a: b', "
      "\"caf\xc3\xa9\"]}\n"
      "train: {seed: 18446744073709551615}\n");
  config.optimizer.lr = 0.1 + 0.2;
  config.optimizer.eps = 5e-324;
  config.optimizer.weight_decay = 1.7976931348623157e308;
  config.optimizer.betas = {1.0 / 3, std::nextafter(1.0, 0.0)};
  config.train.clip = 1e22;
  const std::string text = dump(config);
  const RunConfig again = files.load(text);
  for (const ConfigDifference& d : differences(config, again))
    ADD_FAILURE() << d.key << ": " << d.a << " | " << d.b;
  EXPECT_EQ(again.optimizer.lr, config.optimizer.lr);
  EXPECT_EQ(again.optimizer.eps, config.optimizer.eps);
  EXPECT_EQ(again.optimizer.weight_decay, config.optimizer.weight_decay);
  EXPECT_EQ(again.optimizer.betas, config.optimizer.betas);
  EXPECT_EQ(again.train.clip, config.train.clip);
  EXPECT_EQ(again.train.seed, config.train.seed);
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.data.tokenizer, config.data.tokenizer);
  EXPECT_EQ(dump(again), text);
  EXPECT_NE(text.find("  lr: 0.30000000000000004\n"), std::string::npos) << text;
}

TEST(Dump, WritesBlocksWithMixersOnALine) {
  const ConfigFiles files;
  const std::string text =
      dump(files.load("model: {mixer: {preset: kata_m2}}\ndata: {task: {segments: [{length: 64, pairs: 4, "
                      "examples: 5}]}}\n"));
  EXPECT_EQ(
      text.substr(0, text.find("train:\n")),
      "model:\n  hidden: 128\n  layers: 4\n  heads: 2\n  head_dim: 64\n  kv_heads: 2\n  mlp: 344\n  vocab: "
      "8192\n"
      "  tie_embeddings: true\n"
      "  norm_eps: 1e-06\n"
      "  mixer: {preset: kata_m2, map: psd, groups: 2, update: add, decay: none, read: normalised, conv: 0, "
      "qk_norm: rms, rope: {base: 10000}, output_gate: false, delta_scale: 1, state: 0, form: auto, chunk: "
      "64}\n"
      "data:\n  tokenizer: bytes\n  train: []\n  validation: []\n  document_token: -1\n  task:\n    name: "
      "mqar\n    vocab: 8192\n"
      "    seed: 123\n    segments:\n      - {length: 64, pairs: 4, examples: 5}\n    test_examples: 1000\n");
}

TEST(NearestName, FindsSlipsOfTheFingerOnly) {
  const std::vector<std::string> names = {"hidden", "heads", "head_dim", "kv_heads", "lr"};
  EXPECT_EQ(nearest_name("hiden", names), "hidden");
  EXPECT_EQ(nearest_name("hdiden", names), "hidden");
  EXPECT_EQ(nearest_name("headdim", names), "head_dim");
  EXPECT_EQ(nearest_name("head", names), "heads");
  EXPECT_EQ(nearest_name("rl", names), "lr");
  EXPECT_EQ(nearest_name("width", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'h'), names), "");
  EXPECT_EQ(nearest_name("hidden", {}), "");
}

}  // namespace
}  // namespace kata
