#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kata {

double learning_rate(const OptimizerConfig& optimizer, int64_t steps, int64_t step) {
  const double peak = optimizer.lr, last = optimizer.final_lr;
  if (step <= optimizer.warmup)
    return peak * static_cast<double>(step) / static_cast<double>(optimizer.warmup);
  if (optimizer.schedule == "constant") return peak;

  int64_t start = optimizer.warmup;  // the decay runs over (start, steps]
  if (optimizer.schedule == "wsd") {
    const int64_t decay =
        optimizer.decay_steps > 0 ? optimizer.decay_steps : std::max<int64_t>(steps / 10, 1);
    start = std::max(start, steps - decay);
  }
  if (step <= start) return peak;
  const double done = static_cast<double>(std::min(step, steps) - start) /
                      static_cast<double>(std::max<int64_t>(steps - start, 1));
  if (optimizer.schedule == "wsd") return peak + (last - peak) * done;
  return last + (peak - last) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

}  // namespace kata
