#include "eval/harness/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include "data/tokenizer.h"
#include "eval/harness/checkpoint_model.h"
#include "eval/harness/compare_samples.h"
#include "eval/harness/result_files.h"
#include "eval/suite.h"

namespace kata::harness {

namespace {

constexpr int64_t least_max_length = 2048;  // what lm-eval takes where a model says nothing

// A checkpoint with its tokenizer, and the scorer on top of both.
struct LoadedScorer {
  std::unique_ptr<InferenceModel> loaded;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<CheckpointModel> model;
  std::unique_ptr<LanguageScorer> scorer;
  Json about;  // for the results file
};

LoadedScorer load_scorer(const EvaluationOptions& options, const Processor& processor) {
  LoadedScorer all;
  all.about = {{"model", options.model}};
  if (options.model == dummy_model) {
    all.scorer = std::make_unique<DummyScorer>();
    return all;
  }
  all.loaded = std::make_unique<InferenceModel>(options.model, processor);
  const RunConfig& config = all.loaded->config();
  if (config.data.task)
    fail(ExitCode::usage, "{}: this model was trained on the task {} and reads no text; give --suite {}",
         options.model, config.data.task->name, config.data.task->name);
  all.tokenizer = load_tokenizer(all.loaded->checkpoint_folder(), config.data.tokenizer);
  all.model = std::make_unique<CheckpointModel>(*all.loaded);
  const int64_t length =
      options.max_length > 0 ? options.max_length : std::max(least_max_length, config.train.sequence);
  const TokenRules rules = token_rules(*all.tokenizer, options.run.compat, length);
  all.scorer =
      std::make_unique<TokenScorer>(*all.model, rules, options.batch, checkpoint_name(options.model));
  all.about["model_args"] = "checkpoint=" + all.loaded->checkpoint_folder();
  all.about["model_num_parameters"] = all.loaded->model().parameters().count();
  all.about["model_dtype"] = "fp32";
  all.about["step"] = all.loaded->step();
  all.about["device"] = processor.device == Device::cuda ? "cuda" : "cpu";
  all.about.update(all.scorer->settings());
  return all;
}

std::vector<TaskResult> prepare_all(const RunOptions& options) {
  std::vector<TaskResult> results;
  for (const std::string& name : options.tasks) {
    const Task& task = find_task(name);
    for (const TaskResult& other : results)
      if (other.task == &task) fail(ExitCode::usage, "--tasks: {} is named twice", name);
    results.push_back(prepare_task(task, options));
    if (task.documents > 0 && results.back().original != task.documents)
      logger().warn("{}: {} documents; the published split ({}) has {}: its numbers are not those of papers",
                    name, results.back().original, task.source, task.documents);
  }
  return results;
}

void prepare_folders(const EvaluationOptions& options) {
  make_directories(options.output);
  const std::filesystem::path json(options.json);
  if (json.has_parent_path()) make_directories(json.parent_path().string());
}

ExitCode report(std::vector<TaskResult>& results, const RunRecord& record, const EvaluationOptions& options,
                Monitor& monitor) {
  int64_t not_finite = 0;
  for (TaskResult& result : results) {
    measure_task(result, options.run.bootstrap);
    not_finite += result.not_finite;
  }
  write_files(results, record, options.output, options.json);
  std::printf("# %s, %s, commit %s\n%s", record.model_name.c_str(), options.run.compat.name.c_str(),
              commit().c_str(), table_text(harness_table(results)).c_str());
  monitor.note(fmt::format("wrote {0}/results.json and {0}/samples_*.jsonl", options.output));
  if (record.truncated > 0)
    monitor.note(
        fmt::format("{} requests were longer than the model reads and lost their beginnings; "
                    "raise --max-length to keep them",
                    record.truncated));
  if (not_finite > 0)
    fail(ExitCode::numeric, "{}: {} likelihoods are not finite: the scores mean nothing", record.model_name,
         not_finite);
  return ExitCode::ok;
}

}  // namespace

std::vector<std::string> suite_tasks(const std::string& suite) {
  if (suite == "lm")
    return {"wikitext",      "lambada_openai", "piqa", "hellaswag", "winogrande", "arc_easy",
            "arc_challenge", "boolq",          "sciq", "copa",      "openbookqa", "social_iqa"};
  if (suite == "recall") return {"swde", "fda", "squad_completion"};
  if (suite == "recall-jrt")
    return {"based_swde", "based_swde_twice", "based_fda", "based_fda_twice", "based_squad"};
  return {};
}

ExitCode evaluate_tasks(const EvaluationOptions& options, Monitor& monitor, const Processor& processor) {
  const auto began = std::chrono::steady_clock::now();
  RunOptions run = options.run;
  LoadedScorer loaded;
  if (run.context_length > 0) {  // documents are cut by the model's tokenizer
    loaded = load_scorer(options, processor);
    run.tokenizer = loaded.tokenizer.get();
    if (run.tokenizer == nullptr)
      fail(ExitCode::usage, "--context-length {}: {} has no tokenizer to count with", run.context_length,
           options.model);
  }
  std::vector<TaskResult> results = prepare_all(run);
  if (!loaded.scorer) loaded = load_scorer(options, processor);
  prepare_folders(options);
  const int64_t requests = request_count(results);
  if (options.model != dummy_model) monitor.expect(static_cast<double>(requests), 1);
  const auto done = [&](int64_t finished, int64_t tokens) {
    monitor.advance(static_cast<double>(finished), tokens, "requests");
    return monitor.stop() == Stop::none;
  };
  if (!answer_tasks(results, *loaded.scorer, done)) {
    const bool interrupted = monitor.stop() == Stop::interrupted;
    monitor.note(fmt::format("{} before the end; nothing is written",
                             interrupted ? "interrupted" : "the time limit was reached"));
    return interrupted ? ExitCode::interrupted : ExitCode::ok;
  }
  RunRecord record{options.run, loaded.about, loaded.scorer->name(), options.batch,
                   loaded.scorer->truncated()};
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return report(results, record, options, monitor);
}

void compare_files(const std::string& left, const std::string& right, double tolerance) {
  const SamplesDifference difference = compare_samples(left, right, tolerance);
  std::printf("%s", difference_text(difference, left, right).c_str());
  if (difference.count > 0)
    fail(ExitCode::data, "{} differs from {} in {} places", right, left, difference.count);
}

}  // namespace kata::harness
