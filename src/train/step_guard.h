// Decides whether a step's gradient may be applied.
//
// A step with a non-finite loss or gradient norm is skipped, and so is one whose norm exceeds outlier_factor
// times the running mean of applied norms (off at 0). More than max_skips skips in a row end the run with
// ExitCode::numeric: a model that only produces NaN is not trained on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/train_config.h"

namespace kata {

class StepGuard {
 public:
  explicit StepGuard(const TrainConfig& config)
      : max_skips_(config.max_skips), factor_(config.outlier_factor) {}

  // True: apply the step. False: skip it. Throws after too many skips in a row; `step` is for the message.
  bool admit(int64_t step, double loss, double gradient_norm);

  nlohmann::json state() const;  // for the checkpoint
  void restore(const nlohmann::json& state);

 private:
  static constexpr int64_t warmup = 20;   // applied steps before outliers are judged
  static constexpr double memory = 0.99;  // of the running mean

  int64_t max_skips_;
  double factor_;
  int64_t skips_ = 0;  // in a row
  int64_t applied_ = 0;
  double mean_norm_ = 0;  // running mean of applied norms
};

}  // namespace kata
