// Sets of keys with small scores: greedy packing, descent, and the bounds that hold for them (MATH:
// capacity).
#pragma once

#include <optional>

#include "eval/capacity_power.h"

namespace kata {

// Keeps the offered keys whose |nu| with every key kept so far is at most (strict: below) the limit.
class GreedyPacking {
 public:
  GreedyPacking(const FeatureMap& map, double limit, bool strict);

  void offer(const Keys& keys);
  const Keys& kept() const { return kept_; }

 private:
  void offer_block(const double* keys, int64_t rows);
  bool fits(double score) const { return strict_ ? score < limit_ : score <= limit_; }

  FeatureMap map_;
  double limit_;
  bool strict_;
  Keys kept_;
};

// Keys kept out of `candidates` random ones. None where it was stopped.
std::optional<int64_t> greedy_count(const KeyMap& map, double limit, bool strict, const KeySource& source,
                                    int64_t candidates, const StopCheck& stop);

// `keys` keys, each the one of `candidates` random ones whose largest |<u, v>| with those before it is least.
Keys greedy_spread(int64_t keys, int64_t candidates, const KeySource& source);

// Moves keys so that the largest |nu| of two of them gets small: descent on a soft maximum that hardens from
// step to step. Returns the best keys met, those until then where it was stopped.
struct Spread {
  Keys keys;
  double worst = 0;  // their largest |nu|
};
Spread spread_keys(const FeatureMap& map, const Keys& start, int64_t steps, const StopCheck& stop);

}  // namespace kata
