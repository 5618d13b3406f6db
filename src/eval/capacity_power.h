// Interference of random keys, the reciprocal of the peak signal-to-noise ratio (MATH: capacity).
//
// power(T) = mean over t of sum_{s != t} score(k_t, k_s)^2, over the mean of score(k_t, k_t)^2, for T random
// unit keys. In expectation it is (T - 1) c with the constant c of capacity_theory.h, so that it crosses 1 at
// T - 1 = 1 / c interfering keys: p for raw scores, p (p + 2) / 3 for psd M = 1.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "eval/capacity_keys.h"

namespace kata {

// Asked between pieces of work; true = leave with what there is.
using StopCheck = std::function<bool()>;

// The power of `keys` keys, averaged over `draws` draws of them. None where it was stopped.
std::optional<double> interference_power(const KeyMap& map, int64_t keys, int64_t draws, uint64_t seed,
                                         const StopCheck& stop);

struct PowerPoint {
  int64_t keys = 0;  // T
  int64_t draws = 0;
  double power = 0;
};
struct PowerCurve {
  std::vector<PowerPoint> points;   // T = 2, 3, 4, 6, 8, 12, ... until the power is past 2
  std::optional<double> threshold;  // T - 1 where the power is 1; none = not reached with max_keys
};
std::optional<PowerCurve> power_curve(const KeyMap& map, const CapacityPower& config, uint64_t seed,
                                      const StopCheck& stop);

}  // namespace kata
