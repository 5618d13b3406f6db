// A whole training run, from YAML text to checked values and back.
#pragma once

#include <string>
#include <vector>

#include "config/data_config.h"
#include "config/model_config.h"
#include "config/train_config.h"

namespace kata {

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  LoggingConfig logging;

  template <class Visitor>
  void visit(Visitor& v) {
    v.section("model", model, "sizes and mixers");
    v.section("data", data, "token files or a task");
    v.section("train", train, "the run");
    v.section("optimizer", optimizer, "AdamW and its schedule");
    v.section("logging", logging, "what is printed");
  }
};

// Reads `path` with the files that it extends, applies `overrides` ("train.steps=10", "model.mixer.0.conv=4")
// in order, resolves and checks. ExitCode::usage with one line for anything wrong.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides);

// The config.yaml of a checkpoint, for its model: data.train may be empty, as where a model was imported.
RunConfig load_checkpoint_config(const std::string& folder);

// YAML that loads to the equal config: every key, resolved, floats in their shortest exact form.
std::string dump(const RunConfig& config);

struct ConfigDifference {
  std::string key;   // dotted: "model.mixer.0.conv"
  std::string a, b;  // as the dump writes them; "(absent)" where one side lacks the key
};
std::vector<ConfigDifference> differences(const RunConfig& a, const RunConfig& b);

// A resumed run continues the same run: only its length and its logging may differ.
bool may_differ_on_resume(const std::string& dotted_key);

// One line of Markdown per key: key, default, values, meaning. configs/README.md holds it.
std::string config_reference();

}  // namespace kata
