#include "train/trainer.h"

#include <cmath>
#include <filesystem>
#include <numbers>

#include "base/file.h"
#include "base/log.h"
#include "train/interrupt.h"
#include "train/llama_files.h"
#include "train/schedule.h"

namespace kata {

namespace {

namespace fs = std::filesystem;

bool holds_run(const std::string& folder) {
  std::error_code unreadable;  // then making the folder reports why
  for (const char* name : {"config.yaml", "metrics.jsonl", "checkpoints"})
    if (fs::exists(fs::path(folder) / name, unreadable)) return true;
  return false;
}

void refuse_other_config(const RunConfig& now, const Checkpoint& checkpoint) {
  const RunConfig then = load_checkpoint_config(checkpoint.folder());
  std::string keys;
  for (const ConfigDifference& d : differences(then, now))
    if (!may_differ_on_resume(d.key))
      keys += fmt::format("{}{}: {} -> {}", keys.empty() ? "" : ", ", d.key, d.a, d.b);
  if (!keys.empty())
    fail(ExitCode::usage,
         "{}: the config has changed since the checkpoint ({}); only train.steps and logging may differ on "
         "--resume",
         checkpoint.folder(), keys);
}

// Weights mean the same function only in the same model. How it is computed may differ, and whether a mixer
// is a preset or the same point spelled out.
void refuse_other_model(const RunConfig& now, const Checkpoint& checkpoint) {
  const RunConfig then = load_checkpoint_config(checkpoint.folder());
  for (const ConfigDifference& d : differences(then, now)) {
    const bool same_function =
        d.key.ends_with(".form") || d.key.ends_with(".chunk") || d.key.ends_with(".preset");
    if (d.key.starts_with("model.") && !same_function)
      fail(ExitCode::usage,
           "train.initial_checkpoint {} is another model: its {} is {}, here it is {}; its config.yaml holds "
           "the model section that fits",
           checkpoint.folder(), d.key, d.a, d.b);
  }
}

}  // namespace

void check_output(const std::string& folder, bool resume) {
  if (!resume && holds_run(folder))
    fail(ExitCode::usage, "{} holds a run already; continue it with --resume or choose another --output",
         folder);
}

Trainer::Trainer(const RunConfig& config, const TrainerOptions& options, BatchSource& train,
                 BatchSource* validation, const std::vector<BatchShape>& train_shapes,
                 const std::vector<BatchShape>& validation_shapes, const Processor& processor)
    : config_(config),
      options_(options),
      train_(train),
      validation_(validation),
      learner_(config.model, config.train, config.optimizer, train_shapes,
               validation ? validation_shapes : std::vector<BatchShape>(), processor),
      guard_(config.train),
      processor_(processor) {
  check_output(options_.output, options_.resume);
  if (options_.resume)
    restore();
  else if (!config_.train.initial_checkpoint.empty())
    start_from(open_checkpoint(config_.train.initial_checkpoint));
  make_directories(options_.output);
  write_file_atomic(options_.output + "/config.yaml", dump(config_));
}

void Trainer::start_from(const Checkpoint& checkpoint) {
  refuse_other_model(config_, checkpoint);
  checkpoint.read_tensors("model.safetensors", learner_.weights());
  learner_.take_over();
  hand_on(checkpoint);
}

// What came with an imported model stays with the models that are made from it.
void Trainer::hand_on(const Checkpoint& checkpoint) {
  if (checkpoint.contains(llama_config_file))
    options_.checkpoint_files.emplace_back(llama_config_file, checkpoint.read(llama_config_file));
}

void Trainer::restore() {
  const Checkpoint checkpoint = open_checkpoint(options_.output);
  refuse_other_config(config_, checkpoint);
  if (checkpoint.step() > config_.train.steps)
    fail(ExitCode::usage, "train.steps is {}, the checkpoint {} is beyond that", config_.train.steps,
         checkpoint.folder());
  checkpoint.read_tensors("model.safetensors", learner_.weights());
  checkpoint.read_tensors("optimizer.safetensors", learner_.moments());
  learner_.take_over();
  try {
    const nlohmann::json& state = checkpoint.state();
    tokens_ = state.at("tokens").get<int64_t>();
    learner_.set_updates(state.at("updates").get<int64_t>());
    guard_.restore(state.at("guard"));
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "{}/state.json: {}", checkpoint.folder(), error.what());
  }
  step_ = saved_ = checkpoint.step();
  hand_on(checkpoint);
}

Trainer::StepResult Trainer::take_step() {
  StepResult result;
  if (next_ != step_) train_.fill(step_, batch_);
  learner_.start(batch_);
  if (step_ + 1 < config_.train.steps) {  // while a GPU computes
    train_.fill(step_ + 1, batch_);
    next_ = step_ + 1;
  }
  result.loss = learner_.finish();
  result.norm = learner_.gradient_norm();
  result.tokens = train_.shape(step_).tokens();
  tokens_ += result.tokens;
  ++step_;
  result.rate = learning_rate(config_.optimizer, config_.train.steps, step_);
  result.applied = guard_.admit(step_, result.loss, result.norm);
  if (result.applied) learner_.update(result.rate, result.norm);
  return result;
}

void Trainer::validate(nlohmann::ordered_json& metrics, Progress& progress) {
  const Evaluation e = learner_.evaluate(*validation_, config_.train.validate_batches);
  metrics["validation_loss"] = e.loss();
  std::string note = fmt::format("step {}: validation loss {:.4f}", step_, e.loss());
  if (options_.bytes_per_token > 0) {
    const double bits = e.loss() / std::numbers::ln2 / options_.bytes_per_token;
    metrics["validation_bits_per_byte"] = bits;
    note += fmt::format(", {:.4f} bits per byte", bits);
  } else {
    metrics["validation_accuracy"] = e.accuracy();
    note += fmt::format(", accuracy {:.4f}", e.accuracy());
  }
  progress.note(note);
}

void Trainer::save(MetricsLog& log, Progress& progress) {
  log.sync();
  CheckpointContents contents;
  contents.step = step_;
  contents.model = learner_.weights();
  contents.optimizer = learner_.moments();
  contents.state = {{"tokens", tokens_}, {"updates", learner_.updates()}, {"guard", guard_.state()}};
  contents.config = dump(config_);
  contents.extra = options_.checkpoint_files;
  progress.note("saved " + save_checkpoint(options_.output, contents, config_.train.keep_checkpoints));
  saved_ = step_;
}

// The fraction of the card's dense bf16 peak that the model's own operations take; null where that is
// unknown.
nlohmann::json Trainer::utilisation(double tokens_per_second) {
  const double peak =
      processor_.gpu != nullptr && config_.train.precision == "bf16" ? processor_.gpu->peak_bf16_flops() : 0;
  if (peak == 0) return nullptr;
  const auto operations = 3 * static_cast<double>(learner_.model().operations(config_.train.sequence / 2));
  return operations * tokens_per_second / peak;
}

bool Trainer::out_of_time() const {
  const double minutes =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count() / 60;
  return options_.time_limit_minutes > 0 && minutes >= options_.time_limit_minutes;
}

ExitCode Trainer::run() {
  const int64_t steps = config_.train.steps;
  MetricsLog log(options_.output + "/metrics.jsonl", options_.resume ? step_ : -1);
  Progress progress(steps, step_, config_.logging.every);
  progress.note(fmt::format("{}: {} parameters, {} of memory, {}", options_.output,
                            learner_.model().parameters().count(), human_bytes(learner_.memory().total()),
                            step_ > 0 ? fmt::format("continuing at step {}", step_) : "from the start"));
  while (step_ < steps && !interrupted()) {
    const StepResult result = take_step();
    progress.advance(result.tokens,
                     fmt::format("loss {:.4f}{}", result.loss, result.applied ? "" : " (skipped)"));
    nlohmann::ordered_json metrics = {{"step", step_},
                                      {"tokens", tokens_},
                                      {"loss", result.loss},
                                      {"grad_norm", result.norm},
                                      {"lr", result.rate},
                                      {"skipped", !result.applied},
                                      {"tokens_per_s", progress.tokens_per_second()},
                                      {"mfu", utilisation(progress.tokens_per_second())},
                                      {"memory", learner_.memory().total()}};
    if (validation_ && config_.train.validate_every > 0 && due(config_.train.validate_every))
      validate(metrics, progress);
    log.write(metrics);
    if (due(config_.train.checkpoint_every)) save(log, progress);
    if (out_of_time()) break;  // after a step, so that every call gets on
  }
  if (step_ != saved_) save(log, progress);  // step 0 as well: what was started can be resumed
  if (step_ < steps)
    progress.note(fmt::format("stopped at step {} of {}; go on with --resume", step_, steps));
  return step_ < steps && interrupted() ? ExitCode::interrupted : ExitCode::ok;
}

}  // namespace kata
