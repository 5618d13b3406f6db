#include "eval/cell.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include "tasks/sources.h"
#include "train/checkpoint.h"
#include "train/inference_model.h"
#include "train/learner.h"
#include "train/schedule.h"
#include "train/step_guard.h"

namespace kata {

namespace {

using Clock = std::chrono::steady_clock;

// Raised when the same config no longer trains to the same weights or scores: what is kept is then done anew.
constexpr int results_version = 1;
constexpr double save_every_seconds = 300;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The run without what changes no bit of it.
RunConfig bare_run(RunConfig run) {
  run.train.threads = 0;
  return run;
}

std::string key_of(const RunConfig& run) {
  return fmt::format("results version {}\n{}", results_version, dump(bare_run(run)));
}

std::string folder_name(const std::string& model, double learning_rate, const std::string& key) {
  std::string name;
  for (const char c : model.substr(0, 100)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    name += plain ? c : '-';
  }
  return fmt::format("{}-lr{:.4g}-{}", name, learning_rate, crc32_text(crc32(key)));
}

}  // namespace

struct Cell::Training {
  Training(const RunConfig& run, const Processor& processor)
      : learner(run.model, run.train, run.optimizer, train_shapes(run), {}, processor), guard(run.train) {}

  Learner learner;
  StepGuard guard;
};

Cell::Cell(const SuiteConfig& suite, const SuiteModel& model, double learning_rate,
           const std::string& cells_folder, const Processor& processor)
    : run_(run_config(suite, model, learning_rate)),
      processor_(processor),
      label_(fmt::format("{} lr {:.4g}", model.name, learning_rate)) {
  const std::string key = key_of(run_);
  folder_ = cells_folder + "/" + folder_name(model.name, learning_rate, key);
  record_ = load_record(folder_, key);
  record_.model = model.name;
  record_.learning_rate = learning_rate;
  if (!failed()) open_checkpoint_folder();
}

void Cell::open_checkpoint_folder() {
  std::error_code ignored;
  const bool present = std::filesystem::exists(folder_ + "/checkpoints", ignored);
  try {
    if (present) {
      const Checkpoint checkpoint = open_checkpoint(folder_);
      if (checkpoint.config() != dump(bare_run(run_)))
        fail(ExitCode::data, "{}: belongs to another training run", checkpoint.folder());
      const nlohmann::json& state = checkpoint.state();
      train_seconds_ = state.at("train_seconds");
      train_loss_ = state.at("train_loss");
      commit_ = state.at("commit");
      step_ = checkpoint.step();
    }
  } catch (const Error& error) {
    logger().warn("{}; {} is trained anew", error.what(), label_);
  } catch (const nlohmann::json::exception& error) {
    logger().warn("{}: not the state of a suite's training ({}); {} is trained anew", folder_, error.what(),
                  label_);
  }
  if (step_ != run_.train.steps) record_.scores.clear();
}

void Cell::save(Training& training) {
  CheckpointContents contents;
  contents.step = step_;
  contents.model = training.learner.weights();
  if (step_ < run_.train.steps) contents.optimizer = training.learner.moments();
  contents.state = {{"updates", training.learner.updates()},
                    {"guard", training.guard.state()},
                    {"train_seconds", train_seconds_},
                    {"train_loss", train_loss_},
                    {"commit", commit_},
                    {"model", record_.model}};
  contents.config = dump(bare_run(run_));
  save_checkpoint(folder_, contents, 1);
}

void Cell::fail_training(const std::string& why) {
  record_.trouble = why;
  record_.commit = commit();
  save_record(folder_, record_);
}

void Cell::train(ExampleSource& source, const StepOrder& order, const ModelCost& cost, Monitor& monitor) {
  const int64_t steps = run_.train.steps;
  Training training(run_, processor_);
  Learner& learner = training.learner;
  if (step_ > 0) {
    const Checkpoint checkpoint = open_checkpoint(folder_);
    checkpoint.read_tensors("model.safetensors", learner.weights());
    checkpoint.read_tensors("optimizer.safetensors", learner.moments());
    learner.take_over();
    learner.set_updates(checkpoint.state().at("updates"));
    training.guard.restore(checkpoint.state().at("guard"));
    monitor.note(fmt::format("{}: goes on after step {} of {}", label_, step_, steps));
  }
  commit_ = commit();

  Batch batch;
  auto last = Clock::now(), saved = last;
  while (step_ < steps && monitor.stop() == Stop::none) {
    source.fill(step_, batch);
    const double loss = learner.gradients(batch), norm = learner.gradient_norm();
    try {
      if (training.guard.admit(step_ + 1, loss, norm)) {
        learner.update(learning_rate(run_.optimizer, steps, step_ + 1), norm);
        train_loss_ = loss;
      }
    } catch (const Error&) {
      fail_training(
          fmt::format("diverged at step {} of {} (loss {}, gradient norm {})", step_ + 1, steps, loss, norm));
      monitor.advance(order.seconds(cost, step_, steps), 0, label_ + "  diverged");
      return;
    }
    monitor.advance(cost.step[order.segment(step_)], batch.shape.tokens(),
                    fmt::format("{}  training {}/{}  loss {:.4f}", label_, step_ + 1, steps, loss));
    ++step_;
    train_seconds_ += seconds_since(last);
    last = Clock::now();
    if (step_ < steps && seconds_since(saved) > save_every_seconds) {
      save(training);
      saved = last = Clock::now();
    }
  }
  if (step_ == 0) return;
  try {
    save(training);
  } catch (const Error& error) {
    if (error.code() != ExitCode::numeric) throw;
    fail_training(fmt::format("diverged before step {} of {}: its weights are not finite", step_, steps));
  }
}

void Cell::read(const std::vector<GridCell>& grid, const ModelCost& cost, Monitor& monitor) {
  if (failed()) {
    for (size_t i = 0; i < grid.size(); ++i)
      monitor.advance(cost.example[i] * static_cast<double>(grid[i].spec.examples), 0, label_);
    return;
  }
  InferenceModel loaded(folder_, processor_);
  for (size_t i = 0; i < grid.size() && monitor.stop() == Stop::none; ++i) {
    if (has(grid[i].spec)) continue;
    const auto slice_done = [&](int64_t examples) {
      monitor.advance(cost.example[i] * static_cast<double>(examples), examples * grid[i].spec.length,
                      fmt::format("{}  reading {}", label_, grid[i].name()));
      return monitor.stop() == Stop::none;
    };
    CellScore score;
    if (!score_cell(loaded.model(), grid[i], slice_done, score, processor_)) return;
    record_.scores.push_back({grid[i].spec, score});
    save_record(folder_, record_);
  }
}

RateResult Cell::result(const std::vector<GridCell>& grid) const {
  RateResult result;
  result.learning_rate = record_.learning_rate;
  result.trouble = record_.trouble;
  result.commit = failed() ? record_.commit : commit_;
  if (step_ > 0) {
    result.train_seconds = train_seconds_;
    result.train_loss = train_loss_;
  }
  for (const GridCell& cell : grid) {
    const CellScore* score = record_.find(cell.spec);
    result.scores.push_back(score ? std::optional(*score) : std::nullopt);
  }
  return result;
}

}  // namespace kata
