// kataeval: trains the small models of a suite and reads them over its grid, reads one checkpoint over it, or
// runs a checkpoint on language tasks.

#include <cstdio>
#include <filesystem>

#include "apps/language_tasks.h"
#include "apps/options.h"
#include "base/file.h"
#include "base/parallel.h"
#include "eval/capacity_report.h"
#include "eval/suite.h"
#include "eval/suite_files.h"
#include "train/interrupt.h"

namespace kata {
namespace {

constexpr const char* example = R"(
Example: the recall suite in a small version, about a minute; then one model out of a run over the same grid
  kataeval --suite mqar --quick
  kataeval --suite mqar --quick --checkpoint runs/recall --json recall.json
and how many keys the maps tell apart, beside the bounds; nothing is trained
  kataeval --suite capacity --quick
and a language model on tasks whose files lie in data/tasks, then two such runs held against each other
  kataeval --tasks arc_easy,lambada_openai --model runs/lm --data data/tasks --output runs/lm-tasks
  kataeval --compare runs/lm-tasks/samples_arc_easy.jsonl other/samples_arc_easy.jsonl

Prints one table; the output folder gets results.json, report.html (open it in a browser), suite.yaml (every key)
and cells/, the trained models: a second run continues where the first one stopped, and a run with another grid
reads them without training. Any of them can be given to --checkpoint.
Exit codes: 0 done or out of time, 2 arguments or config, 3 data or checkpoint, 4 a model that could not be
trained or whose likelihoods are no numbers, 5 device, 130 interrupted.)";

struct Options {
  SharedOptions shared;
  LanguageTaskOptions language;
  std::string suite, checkpoint, json, output;
  bool quick = false;
  double time_limit = 0;
};

std::string suite_path(const Options& options) {
  return options.shared.config.empty() ? find_suite(options.suite, suite_folders()) : options.shared.config;
}

SuiteConfig load(const Options& options) {
  const std::string path = suite_path(options);
  const SuiteConfig suite = load_suite_config(path, options.quick, options.shared.overrides);
  if (suite.suite != options.suite)
    fail(ExitCode::usage, "--suite {}: {} is the suite {}; give --suite {}", options.suite, path, suite.suite,
         suite.suite);
  check_suite(suite);
  return suite;
}

std::string output_folder(const Options& options) {
  if (!options.output.empty()) return options.output;
  std::string name = "runs/eval-" + options.suite + (options.quick ? "-quick" : "");
  if (!options.checkpoint.empty()) name += "-" + checkpoint_name(options.checkpoint);
  return name;
}

// Everything that could keep the results from being written is met here, not after the training.
void prepare_output(const std::string& suite, const std::string& output, const std::string& json) {
  make_directories(output);
  write_file_atomic(output + "/suite.yaml", suite);
  if (json.empty()) return;
  const std::filesystem::path path(json);
  if (std::filesystem::is_directory(path))
    fail(ExitCode::usage, "--json {}: is a folder; expected a file", json);
  if (path.has_parent_path()) make_directories(path.parent_path().string());
}

void print(const SuiteResults& results) {
  std::printf("# suite %s, commit %s\n%s", results.title().c_str(), results.commit.c_str(),
              table_text(result_table(results)).c_str());
}

ExitCode finish(const SuiteResults& results, const std::string& output, Monitor& monitor) {
  if (!results.models.empty()) print(results);
  monitor.note(fmt::format("wrote {0}/results.json and {0}/report.html", output));
  if (!results.complete()) {
    monitor.note(fmt::format(
        "{} before the end; what is finished is kept in {}, the same command goes on",
        monitor.stop() == Stop::interrupted ? "interrupted" : "the time limit was reached", output));
    return monitor.stop() == Stop::interrupted ? ExitCode::interrupted : ExitCode::ok;
  }
  for (const ModelResult& model : results.models)
    if (!model.best())
      fail(ExitCode::numeric,
           "{}: no learning rate trained it ({}); lower train.learning_rates or set train.clip", model.name,
           model.rates.at(0).trouble);
  return ExitCode::ok;
}

ExitCode evaluate(const Options& options) {
  const SuiteConfig suite = load(options);
  if (suite.train.threads > 0) set_thread_count(static_cast<int>(suite.train.threads));
  const std::string output = output_folder(options);
  catch_interrupts();
  Monitor monitor(options.time_limit, interrupted);
  const ChosenProcessor processor(options.shared);
  // A checkpoint that cannot be used leaves no folder behind.
  std::optional<SuiteResults> results;
  if (!options.checkpoint.empty())
    results = run_checkpoint(suite, options.quick, options.checkpoint, monitor, processor.get());
  prepare_output(dump(suite), output, options.json);
  if (!results) results = run_suite(suite, options.quick, output, monitor, processor.get());
  write_results(*results, output, options.json);
  return finish(*results, output, monitor);
}

// The suite without a model: nothing to keep, so a run that was stopped begins anew.
ExitCode measure_capacity(const Options& options, const std::string& path) {
  if (options.suite != capacity_suite)
    fail(ExitCode::usage, "--suite {0}: {1} is the suite {2}; give --suite {2}", options.suite, path,
         capacity_suite);
  if (!options.checkpoint.empty())
    fail(ExitCode::usage, "--checkpoint {}: the suite capacity measures maps, not a model; leave it out",
         options.checkpoint);
  require_cpu(options.shared, "the suite capacity");
  const CapacityConfig config = load_capacity_config(path, options.quick, options.shared.overrides);
  if (config.threads > 0) set_thread_count(static_cast<int>(config.threads));
  const std::string output = output_folder(options);
  catch_interrupts();
  Monitor monitor(options.time_limit, interrupted);
  prepare_output(dump(config), output, options.json);
  const CapacityResults results = run_capacity(config, options.quick, monitor);
  write_results(results, output, options.json);
  std::printf("# suite capacity%s, commit %s\n%s", options.quick ? " --quick" : "", results.commit.c_str(),
              capacity_tables(results).c_str());
  monitor.note(fmt::format("wrote {0}/results.json and {0}/report.html", output));
  if (results.complete()) return ExitCode::ok;
  const bool stopped = monitor.stop() == Stop::interrupted;
  monitor.note(fmt::format("{} after {} of {} measurements",
                           stopped ? "interrupted" : "the time limit was reached", results.done,
                           results.planned));
  return stopped ? ExitCode::interrupted : ExitCode::ok;
}

// Language tasks have no config, and suites have no tasks: an option of the other kind would change nothing.
void refuse_mixture(const Options& options, bool language) {
  const LanguageTaskOptions& given = options.language;
  if (language && (options.quick || !options.shared.config.empty() || !options.shared.overrides.empty()))
    fail(ExitCode::usage,
         "--quick, --config and --set belong to suites that train; language tasks have --limit");
  if (!language && (!given.model.empty() || !given.data.empty()))
    fail(ExitCode::usage,
         "--model and --data belong to language tasks; give --tasks, or --suite lm or recall");
}

ExitCode run_language_tasks(const Options& options) {
  const harness::EvaluationOptions evaluation =
      evaluation_of(options.language, options.suite, options.checkpoint, options.output, options.json);
  catch_interrupts();
  Monitor monitor(options.time_limit, interrupted);
  const ChosenProcessor processor(options.shared);
  return harness::evaluate_tasks(evaluation, monitor, processor.get());
}

int run(int argc, char** argv) {
  CLI::App app("Measures models on a suite of tasks.", "kataeval");
  Options options;
  CLI::Option* suite = app.add_option(
      "--suite", options.suite, "name of the suite: configs/suites/NAME.yaml, or lm, recall, recall-jrt");
  app.add_flag("--quick", options.quick, "the suite's small version");
  app.add_option(
      "--checkpoint", options.checkpoint,
      "read this model instead of training the suite's: a run (its latest checkpoint) or one step folder");
  app.add_option("--json", options.json, "one more place for results.json");
  app.add_option("--output", options.output,
                 "folder of results and trained models (default: runs/eval-NAME...)");
  app.add_option("--time-limit", options.time_limit, "minutes after which it stops; the same command goes on")
      ->check(minutes());
  add_config_options(app, options.shared)
      ->description("YAML file of the suite, instead of the one found by name");
  add_device_option(app, options.shared);
  add_log_options(app, options.shared);
  add_language_task_options(app, options.language);
  app.footer(example);
  if (!parse(app, argc, argv, options.shared)) return 0;
  const std::vector<std::string>& pair = options.language.compare;
  if (!pair.empty()) {
    harness::compare_files(pair[0], pair[1], options.language.tolerance);
    return 0;
  }
  refuse_mixture(options, options.language.asked(options.suite));
  if (options.language.asked(options.suite)) return static_cast<int>(run_language_tasks(options));
  if (suite->count() == 0) fail(ExitCode::usage, "--suite is missing; try kataeval --suite mqar --quick");
  const std::string path = suite_path(options);
  const bool capacity = suite_of_file(path) == capacity_suite;
  return static_cast<int>(capacity ? measure_capacity(options, path) : evaluate(options));
}

}  // namespace
}  // namespace kata

int main(int argc, char** argv) {
  return kata::run_main("kataeval", argc, argv, [&] { return kata::run(argc, argv); });
}
