#include "config/run_config.h"

#include <algorithm>

#include "config/checks.h"
#include "config/table_reader.h"
#include "config/table_writer.h"

namespace kata {
namespace {

// A model that was imported has nothing to train on.
void resolve_data(DataConfig& data, bool to_train, const Origins& origins) {
  if (!data.task) {
    if (data.train.empty() && to_train)
      origins.reject("data.train", "nothing to train on; give token files in data.train, or a data.task");
    return;
  }
  if (!data.train.empty()) origins.reject("data.train", "given beside data.task; leave out one of the two");
  if (!data.validation.empty())
    origins.reject("data.validation", "given beside data.task, which makes its own; leave it out");
  if (data.tokenizer != DataConfig().tokenizer)
    origins.reject("data.tokenizer", "given beside data.task, which makes token ids; leave it out");
  if (data.document_token != DataConfig().document_token)
    origins.reject("data.document_token", "given beside data.task, whose examples stand alone; leave it out");
  resolve_task(*data.task, "data.task", origins);
}

void check_train(const TrainConfig& train, const DataConfig& data, const Origins& origins) {
  if (train.batch_tokens % train.sequence != 0)
    origins.reject("train.batch_tokens", "{} is not a multiple of train.sequence {}", train.batch_tokens,
                   train.sequence);
  if (train.micro_batch != 0 && train.rows() % train.micro_batch != 0)
    origins.reject("train.micro_batch", "{} does not divide the {} rows of a step (batch_tokens / sequence)",
                   train.micro_batch, train.rows());
  if (data.task && data.task->longest() > train.sequence)
    origins.reject("train.sequence", "{} is shorter than the longest segment of data.task, {}",
                   train.sequence, data.task->longest());
}

RunConfig load(const std::string& path, const std::vector<std::string>& overrides, bool to_train) {
  YamlNode root = read_yaml_chain(path);
  for (const std::string& assignment : overrides) apply_override(root, assignment);
  ReadLog log{{}, Origins(path)};
  RunConfig config;
  TableReader::read_table(root, config, log);
  log.report();
  resolve_model(config.model, "model", "model.mixer", log.origins);
  resolve_data(config.data, to_train, log.origins);
  if (config.data.task) take_task_vocab(config.model, *config.data.task, log.origins);
  check_train(config.train, config.data, log.origins);
  check_optimizer(config.optimizer, config.optimizer.lr, config.train.steps, log.origins);
  return config;
}

}  // namespace

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides) {
  return load(path, overrides, true);
}

RunConfig load_checkpoint_config(const std::string& folder) {
  return load(folder + "/config.yaml", {}, false);
}

std::string dump(const RunConfig& config) {
  return block_yaml(TableToTree::tree(config, true));
}

std::vector<ConfigDifference> differences(const RunConfig& a, const RunConfig& b) {
  const auto left = flatten(TableToTree::tree(a, false)), right = flatten(TableToTree::tree(b, false));
  const auto find = [](const auto& pairs, const std::string& key) {
    return std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; });
  };
  const std::string absent = "(absent)";
  std::vector<ConfigDifference> all;
  for (const auto& [key, value] : left) {
    const auto other = find(right, key);
    const std::string& b_value = other == right.end() ? absent : other->second;
    if (value != b_value) all.push_back({key, value, b_value});
  }
  for (const auto& [key, value] : right)
    if (find(left, key) == left.end()) all.push_back({key, absent, value});
  return all;
}

bool may_differ_on_resume(const std::string& dotted_key) {
  return dotted_key == "train.steps" || dotted_key.rfind("logging.", 0) == 0;
}

std::string config_reference() {
  return markdown(TableToRows::rows(RunConfig()));
}

}  // namespace kata
