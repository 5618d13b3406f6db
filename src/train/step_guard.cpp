#include "train/step_guard.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace kata {

bool StepGuard::admit(int64_t step, double loss, double gradient_norm) {
  const bool finite = std::isfinite(loss) && std::isfinite(gradient_norm);
  const bool outlier = factor_ > 0 && applied_ >= warmup && gradient_norm > factor_ * mean_norm_;
  if (finite && !outlier) {
    skips_ = 0;
    mean_norm_ = applied_ == 0 ? gradient_norm : memory * mean_norm_ + (1 - memory) * gradient_norm;
    ++applied_;
    return true;
  }
  if (++skips_ > max_skips_)
    fail(ExitCode::numeric,
         "step {}: loss {}, gradient norm {}: {} steps in a row were not usable, train.max_skips allows {}; "
         "lower "
         "optimizer.lr or set train.clip, and resume from the last checkpoint",
         step, loss, gradient_norm, skips_, max_skips_);
  return false;
}

nlohmann::json StepGuard::state() const {
  return {{"skips", skips_}, {"applied", applied_}, {"mean_norm", mean_norm_}};
}

void StepGuard::restore(const nlohmann::json& state) {
  skips_ = state.at("skips").get<int64_t>();
  applied_ = state.at("applied").get<int64_t>();
  mean_norm_ = state.at("mean_norm").get<double>();
}

}  // namespace kata
