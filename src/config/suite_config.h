// A suite: small models trained on one task, then read over a grid of lengths (configs/suites/<name>.yaml).
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace kata {

struct SuiteModel {
  std::string name;                 // row of the report, unique in the suite
  std::vector<MixerConfig> mixers;  // resolved to one per layer
  int64_t steps = 0;                // 0 = as many as the others

  template <class Visitor>
  void visit(Visitor& v) {
    v.required("name", name, text(), "row of the report");
    v.field("steps", steps, at_least(0), "optimizer steps of this model; 0 = those of train");
    v.one_or_list("mixer", mixers, "one mixer for all layers, or a list with one per layer");
  }
};

struct SuiteSizes : ModelConfig {
  template <class Visitor>
  void visit(Visitor& v) {
    visit_sizes(v);
  }
};

struct SuiteTask : TaskConfig {  // held-out examples are the grid's
  template <class Visitor>
  void visit(Visitor& v) {
    visit_training(v);
  }
};

struct SuiteOptimizer : OptimizerConfig {
  SuiteOptimizer() { warmup = 0, final_lr = 0; }

  template <class Visitor>
  void visit(Visitor& v) {
    visit_shared(v);
  }
};

struct SuiteTraining {
  int64_t epochs = 32;  // passes over the segments, unless steps is given
  int64_t steps = 0;    // 0 = epochs
  int64_t batch = 256;  // rows per step
  std::vector<double> learning_rates = {1e-3};
  uint64_t seed = 1;
  double clip = 0;
  int64_t micro_batch = 0;
  int64_t threads = 0;

  template <class Visitor>
  void visit(Visitor& v) {
    v.field("epochs", epochs, between(1, 100'000), "passes over the task's segments, where steps is 0");
    v.field("steps", steps, at_least(0), "optimizer steps; 0 = epochs");
    v.field("batch", batch, between(1, int64_t{1} << 31), "examples per step");
    v.field("learning_rates", learning_rates, positive(), "peak rates to try; the best result is reported");
    v.field("seed", seed, any_seed(), "seed of initialisation");
    v.field("clip", clip, nonnegative(), "largest gradient norm; 0 = no clipping");
    v.field("micro_batch", micro_batch, between(0, int64_t{1} << 31),
            "examples per forward pass; divides batch; 0 = all at once");
    v.field("threads", threads, between(0, 4096), "processor threads; 0 = all cores; changes no bit");
  }
};

struct SuiteConfig {
  std::string suite;
  SuiteSizes model;  // shared by all models; its mixers stay empty
  std::vector<SuiteModel> models;
  SuiteTask task;                       // what they are trained on
  std::vector<TaskSegment> evaluation;  // the grid
  SuiteTraining train;
  SuiteOptimizer optimizer;

  template <class Visitor>
  void visit(Visitor& v) {
    v.required("suite", suite, text(), "name of the suite");
    v.section("model", model, "sizes that all models share");
    v.list("models", models, "the models to compare");
    v.section("task", task, "what they are trained on");
    v.list("evaluation", evaluation, "the grid that they are read over");
    v.section("train", train, "the training of each");
    v.section("optimizer", optimizer, "AdamW and its schedule");
  }

  int64_t steps() const;  // of one training run: train.steps, or epochs over the segments
  int64_t steps(const SuiteModel& model) const { return model.steps != 0 ? model.steps : steps(); }
};

// As load_run_config. With `quick`, the file's `quick:` map (same keys) is laid over it; an error if there is
// none.
SuiteConfig load_suite_config(const std::string& path, bool quick, const std::vector<std::string>& overrides);

// The training run of one cell of the suite.
RunConfig run_config(const SuiteConfig& suite, const SuiteModel& model, double learning_rate);

std::string dump(const SuiteConfig& config);
std::string suite_reference();

}  // namespace kata
