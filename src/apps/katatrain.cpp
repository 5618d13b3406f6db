// katatrain: trains the model that a config describes.

#include <cstdio>
#include <filesystem>

#include "apps/options.h"
#include "base/parallel.h"
#include "data/advice.h"
#include "data/tokenize.h"
#include "data/tokenizer.h"
#include "nn/mixer_table.h"
#include "tasks/sources.h"
#include "train/interrupt.h"
#include "train/trainer.h"

namespace kata {
namespace {

constexpr const char* example = R"(
Example: train the quickstart model, look at it, go on after an interruption
  katatrain --config configs/quickstart.yaml --dry-run
  katatrain --config configs/quickstart.yaml --output runs/first
  katatrain --config configs/quickstart.yaml --output runs/first --resume

Writes DIR/config.yaml (every key), DIR/metrics.jsonl (a line a step) and DIR/checkpoints/step-*/.
Exit codes: 0 done, 2 arguments or config, 3 data or checkpoint, 4 numerical failure, 5 device, 130 interrupted.)";

struct Options {
  SharedOptions shared;
  std::string output;
  bool resume = false, dry_run = false, list_mixers = false;
  int64_t steps = 0;
  double time_limit = 0;
};

// Where the plan is made for: a GPU need not be there.
Processor planned_processor(const SharedOptions& options) {
  ChosenProcessor::gpu_index(options.device);
  const bool gpu = options.device.starts_with("cuda") || (options.device == "auto" && gpu_problem().empty());
  if (gpu && !cuda_build) fail(ExitCode::device, "--device {}: {}", options.device, gpu_problem());
  return {gpu ? Device::cuda : Device::cpu, nullptr};
}

// The most rows of a slice (train.micro_batch) whose plan fits into the free memory of the card.
int64_t largest_micro_batch(RunConfig config, size_t memory, const Processor& processor) {
  const auto fits = [&](int64_t rows) {
    config.train.micro_batch = rows;
    return Learner::plan(config.model, config.train, train_shapes(config), {}, processor).total() <= memory;
  };
  int64_t most = 0;
  for (int64_t rows = 1; rows <= config.train.rows(); ++rows)
    if (config.train.rows() % rows == 0) {
      if (!fits(rows)) break;
      most = rows;
    }
  return most;
}

void print_card(const RunConfig& config, const SharedOptions& options, const Processor& processor) {
  if (processor.device == Device::cpu || !gpu_problem().empty()) return;
  const Gpu gpu(ChosenProcessor::gpu_index(options.device));
  const size_t free = gpu.free_memory() + Gpu::workspace_bytes;
  const int64_t most = largest_micro_batch(config, free, processor);
  std::printf("# %s: %s free; largest train.micro_batch that fits: %ld rows of %ld tokens\n",
              gpu.name().c_str(), human_bytes(free).c_str(), static_cast<long>(most),
              static_cast<long>(config.train.sequence));
}

void print_plan(const RunConfig& config, const MemoryPlan& plan) {
  LanguageModel model(config.model, DType::f32);
  std::printf("%s\n# parameters: %ld\n# state of a sequence of %ld tokens: %ld numbers\n",
              dump(config).c_str(), static_cast<long>(model.parameters().count()),
              static_cast<long>(config.train.sequence),
              static_cast<long>(model.state_entries(config.train.sequence)));
  std::string text = "# " + plan.text();
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos && at + 1 < text.size(); at += 3)
    text.replace(at, 1, "\n# ");
  std::printf("%s", text.c_str());
}

RunConfig resolved_config(const Options& options) {
  std::vector<std::string> overrides = options.shared.overrides;
  if (options.steps > 0) overrides.push_back("train.steps=" + std::to_string(options.steps));
  RunConfig config = load_run_config(options.shared.config, overrides);
  config.model.vocab = resolve_vocab(config);
  return config;
}

ExitCode train(const Options& options) {
  const RunConfig config = resolved_config(options);
  if (config.train.threads > 0) set_thread_count(static_cast<int>(config.train.threads));
  const auto train_batches = train_shapes(config), validation_batches = validation_shapes(config);
  if (options.dry_run) {
    const Processor processor = planned_processor(options.shared);
    print_plan(config,
               Learner::plan(config.model, config.train, train_batches, validation_batches, processor));
    print_card(config, options.shared, processor);
    return ExitCode::ok;
  }
  const ChosenProcessor processor(options.shared, config.train.precision);

  TrainerOptions trainer;
  trainer.output = options.output.empty()
                       ? "runs/" + std::filesystem::path(options.shared.config).stem().string()
                       : options.output;
  trainer.resume = options.resume;
  trainer.time_limit_minutes = options.time_limit;
  check_output(trainer.output, trainer.resume);  // before any data is read
  if (!config.data.task) {
    const auto tokenizer = make_tokenizer(config.data.tokenizer);
    trainer.checkpoint_files = {{tokenizer->file_name(), tokenizer->serialise()}};
    if (!config.data.validation.empty())
      trainer.bytes_per_token = bytes_per_token(expand_data_patterns(config.data.validation), *tokenizer);
  }
  const auto source = make_train_source(config);
  const auto validation = make_validation_source(config);
  catch_interrupts();
  return Trainer(config, trainer, *source, validation.get(), train_batches, validation_batches,
                 processor.get())
      .run();
}

int run(int argc, char** argv) {
  CLI::App app("Trains a language model from one config file.", "katatrain");
  Options options;
  CLI::Option* config = add_config_options(app, options.shared);
  app.add_option("--output", options.output, "folder of the run (default: runs/<config name>)");
  app.add_flag("--resume", options.resume, "continue the run in the folder, bit for bit");
  app.add_flag("--dry-run", options.dry_run, "print the resolved config and the memory plan, and stop");
  app.add_flag("--list-mixers", options.list_mixers,
               "print the table of mixers (with a config: for a layer of its sizes), and stop");
  app.add_option("--steps", options.steps, "the same as --set train.steps=N")->check(CLI::PositiveNumber);
  app.add_option("--time-limit", options.time_limit, "minutes after which the run saves and stops")
      ->check(minutes());
  add_device_option(app, options.shared);
  add_log_options(app, options.shared);
  app.footer(example);
  if (!parse(app, argc, argv, options.shared)) return 0;
  if (options.list_mixers) {
    const bool given = config->count() > 0;
    std::printf("%s",
                mixer_table(given ? load_run_config(options.shared.config, options.shared.overrides).model
                                  : sizes_of_340m())
                    .c_str());
    return 0;
  }
  if (config->count() == 0)
    fail(ExitCode::usage, "--config is missing; try katatrain --config configs/quickstart.yaml");
  return static_cast<int>(train(options));
}

}  // namespace
}  // namespace kata

int main(int argc, char** argv) {
  return kata::run_main("katatrain", argc, argv, [&] { return kata::run(argc, argv); });
}
