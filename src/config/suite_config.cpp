#include "config/suite_config.h"

#include <algorithm>
#include <set>

#include "config/checks.h"
#include "config/quick_layer.h"
#include "config/table_reader.h"
#include "config/table_writer.h"

namespace kata {
namespace {

void check_training(const SuiteConfig& suite, const Origins& origins) {
  const SuiteTraining& train = suite.train;
  constexpr int64_t most_tokens = int64_t{1} << 40;
  if (train.micro_batch != 0 && train.batch % train.micro_batch != 0)
    origins.reject("train.micro_batch", "{} does not divide the batch of {}", train.micro_batch, train.batch);
  if (train.batch > most_tokens / suite.task.longest())
    origins.reject("train.batch", "{} examples of {} tokens are more than {} tokens a step", train.batch,
                   suite.task.longest(), most_tokens);
  if (train.learning_rates.empty()) origins.reject("train.learning_rates", "empty; give at least one rate");
  for (const double rate : train.learning_rates)
    for (const SuiteModel& model : suite.models)
      check_optimizer(suite.optimizer, rate, suite.steps(model), origins);
}

SuiteConfig read_suite(const YamlNode& root, const std::string& path) {
  ReadLog log{{}, Origins(path)};
  const Origins& origins = log.origins;
  SuiteConfig suite;
  TableReader::read_table(root, suite, log);
  log.report();
  resolve_task(suite.task, "task", origins);
  resolve_segments(suite.evaluation, suite.task, "evaluation", origins);
  take_task_vocab(suite.model, suite.task, origins);
  if (suite.models.empty()) origins.reject("models", "empty; give at least one model");
  std::set<std::string> names;
  ModelConfig sizes;
  for (size_t i = 0; i < suite.models.size(); ++i) {
    SuiteModel& model = suite.models[i];
    if (!names.insert(model.name).second)
      origins.reject(fmt::format("models.{}.name", i), "'{}' is the name of an earlier model", model.name);
    sizes = suite.model;
    sizes.mixers = model.mixers;
    resolve_model(sizes, "model", fmt::format("models.{}.mixer", i), origins);
    model.mixers = sizes.mixers;
  }
  suite.model.head_dim = sizes.head_dim;
  suite.model.kv_heads = sizes.kv_heads;
  check_training(suite, origins);
  return suite;
}

}  // namespace

int64_t SuiteConfig::steps() const {
  if (train.steps != 0) return train.steps;
  int64_t an_epoch = 0;
  for (const TaskSegment& segment : task.segments)
    an_epoch += (segment.examples + train.batch - 1) / train.batch;
  return train.epochs * an_epoch;
}

SuiteConfig load_suite_config(const std::string& path, bool quick,
                              const std::vector<std::string>& overrides) {
  return load_with_quick(path, quick, overrides, read_suite);
}

RunConfig run_config(const SuiteConfig& suite, const SuiteModel& model, double learning_rate) {
  RunConfig run;
  run.model = suite.model;
  run.model.mixers = model.mixers;
  run.data.task = suite.task;
  run.train.steps = suite.steps(model);
  run.train.sequence = suite.task.longest();
  run.train.batch_tokens = suite.train.batch * run.train.sequence;
  run.train.seed = suite.train.seed;
  run.train.clip = suite.train.clip;
  run.train.micro_batch = suite.train.micro_batch;
  run.train.threads = suite.train.threads;
  run.train.validate_every = 0;
  run.train.checkpoint_every = 0;
  run.optimizer = suite.optimizer;
  run.optimizer.lr = learning_rate;
  return run;
}

std::string dump(const SuiteConfig& config) {
  return block_yaml(TableToTree::tree(config, true));
}

std::string suite_reference() {
  return markdown(TableToRows::rows(SuiteConfig()));
}

}  // namespace kata
