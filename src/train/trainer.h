// The training run: batches in, metrics and checkpoints out.
//
// Everything that a later step depends on is in the checkpoint or a pure function of the config and the step,
// so a run that was killed and resumed gives the metrics and the file of one that was not, bit for bit.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "train/checkpoint.h"
#include "train/learner.h"
#include "train/metrics_log.h"
#include "train/progress.h"
#include "train/step_guard.h"

namespace kata {

struct TrainerOptions {
  std::string output;  // the run's folder
  bool resume = false;
  double time_limit_minutes = 0;                                      // 0 = none
  double bytes_per_token = 0;                                         // for bits per byte; 0 = unknown
  std::vector<std::pair<std::string, std::string>> checkpoint_files;  // name and bytes: the tokenizer
};

// ExitCode::usage when the folder holds a run and resume is not set. Nothing is written.
void check_output(const std::string& folder, bool resume);

class Trainer {
 public:
  // Makes the folder, or restores the run in it: ExitCode::usage with the keys when its config differs in
  // more than train.steps and logging, ExitCode::data when there is no usable checkpoint; nothing is written
  // in these cases. A new run starts from the weights of config.train.initial_checkpoint, where given:
  // ExitCode::usage when that is of another model.
  Trainer(const RunConfig& config, const TrainerOptions& options, BatchSource& train, BatchSource* validation,
          const std::vector<BatchShape>& train_shapes, const std::vector<BatchShape>& validation_shapes,
          const Processor& processor = {});

  // Trains to config.train.steps: ok, or interrupted after saving (a time limit that ran out is ok).
  ExitCode run();

 private:
  struct StepResult {
    double loss = 0, norm = 0, rate = 0;
    int64_t tokens = 0;
    bool applied = false;
  };

  void start_from(const Checkpoint& checkpoint);  // its weights, at step 0
  void restore();
  void hand_on(const Checkpoint& checkpoint);
  StepResult take_step();
  void validate(nlohmann::ordered_json& metrics, Progress& progress);
  void save(MetricsLog& log, Progress& progress);
  nlohmann::json utilisation(double tokens_per_second);
  bool due(int64_t every) const { return (every > 0 && step_ % every == 0) || step_ == config_.train.steps; }
  bool out_of_time() const;

  RunConfig config_;
  TrainerOptions options_;
  BatchSource& train_;
  BatchSource* validation_;
  Learner learner_;
  StepGuard guard_;
  Processor processor_;
  Batch batch_;
  int64_t next_ = -1;   // the step that batch_ is of
  int64_t step_ = 0;    // steps done
  int64_t tokens_ = 0;  // tokens seen
  int64_t saved_ = -1;  // step of the newest checkpoint; -1: none yet
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kata
