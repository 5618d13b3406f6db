// kataeval: trains the small models of a suite and reads them over its grid, or reads one checkpoint over it.

#include <cstdio>
#include <filesystem>

#include "apps/options.h"
#include "base/file.h"
#include "base/parallel.h"
#include "eval/suite.h"
#include "eval/suite_files.h"
#include "train/interrupt.h"

namespace kata {
namespace {

constexpr const char* example = R"(
Example: the recall suite in a small version, about a minute; then one model out of a run over the same grid
  kataeval --suite mqar --quick
  kataeval --suite mqar --quick --checkpoint runs/recall --json recall.json

Prints one table; the output folder gets results.json, report.html (open it in a browser), suite.yaml (every key)
and cells/, the trained models: a second run continues where the first one stopped, and a run with another grid
reads them without training. Any of them can be given to --checkpoint.
Exit codes: 0 done or out of time, 2 arguments or config, 3 data or checkpoint, 4 a model that could not be
trained, 5 device, 130 interrupted.)";

struct Options {
  SharedOptions shared;
  std::string suite, checkpoint, json, output;
  bool quick = false;
  double time_limit = 0;
};

SuiteConfig load(const Options& options) {
  const std::string path =
      options.shared.config.empty() ? find_suite(options.suite, suite_folders()) : options.shared.config;
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
void prepare_output(const SuiteConfig& suite, const std::string& output, const std::string& json) {
  make_directories(output);
  write_file_atomic(output + "/suite.yaml", dump(suite));
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
  // A checkpoint that cannot be used leaves no folder behind.
  std::optional<SuiteResults> results;
  if (!options.checkpoint.empty())
    results = run_checkpoint(suite, options.quick, options.checkpoint, monitor);
  prepare_output(suite, output, options.json);
  if (!results) results = run_suite(suite, options.quick, output, monitor);
  write_results(*results, output, options.json);
  return finish(*results, output, monitor);
}

int run(int argc, char** argv) {
  CLI::App app("Measures models on a suite of tasks.", "kataeval");
  Options options;
  CLI::Option* suite =
      app.add_option("--suite", options.suite, "name of the suite: configs/suites/NAME.yaml");
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
  app.footer(example);
  if (!parse(app, argc, argv, options.shared)) return 0;
  if (suite->count() == 0) fail(ExitCode::usage, "--suite is missing; try kataeval --suite mqar --quick");
  check_device(options.shared);
  return static_cast<int>(evaluate(options));
}

}  // namespace
}  // namespace kata

int main(int argc, char** argv) {
  return kata::run_main("kataeval", argc, argv, [&] { return kata::run(argc, argv); });
}
