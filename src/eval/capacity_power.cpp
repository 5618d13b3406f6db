#include "eval/capacity_power.h"

#include <algorithm>

#include "base/parallel.h"

namespace kata {

namespace {

constexpr int64_t batch_keys = 16384;  // keys in memory at a time, whole draws
constexpr int64_t fewest_draws = 4, most_draws = 4000;

struct Powers {
  double noise = 0, signal = 0;  // sums over keys
};

// The share of a block of keys in both sums.
class BlockPower {
 public:
  BlockPower(const FeatureMap& map, const Keys& keys, int64_t first, int64_t count)
      : map_(map), keys_(keys), first_(first), count_(count) {}

  // Keys [begin, begin + key_tile) of the draw with all later ones; a pair counts for both of its keys.
  Powers operator()(int64_t begin) {
    make_features(a_, map_, keys_.row(first_ + begin), std::min(key_tile, count_ - begin));
    Powers sum{pairs(a_, true), 0};
    for (const double self : a_.self) sum.signal += self * self;
    for (int64_t j = begin + key_tile; j < count_; j += key_tile) {
      make_features(b_, map_, keys_.row(first_ + j), std::min(key_tile, count_ - j));
      sum.noise += pairs(b_, false);
    }
    return sum;
  }

 private:
  double pairs(const Features& b, bool same) {
    make_scores(s_, a_, b, scratch_);
    double sum = 0;
    for (int64_t i = 0; i < a_.rows; ++i) {
      const double* s = s_.data() + i * b.rows;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = same ? i + 1 : 0; j < b.rows; ++j) sum += s[j] * s[j];
    }
    return 2 * sum;
  }

  const FeatureMap& map_;
  const Keys& keys_;
  int64_t first_, count_;
  Features a_, b_;
  std::vector<double> s_, scratch_;
};

}  // namespace

std::optional<double> interference_power(const KeyMap& map, int64_t keys, int64_t draws, uint64_t seed,
                                         const StopCheck& stop) {
  const KeySource source(seed, KeyUse::power, map.width(), keys);
  const int64_t blocks = ceil_div(keys, key_tile), batch = std::max<int64_t>(batch_keys / keys, 1);
  Powers sum;
  for (int64_t draw = 0; draw < draws; draw += batch) {
    if (stop()) return std::nullopt;
    const int64_t here = std::min(batch, draws - draw);
    const Keys drawn = source.take(draw * keys, here * keys);
    std::vector<Powers> partial(static_cast<size_t>(here * blocks));
    parallel_for(here * blocks, [&](int64_t unit) {
      partial[unit] = BlockPower(map.map, drawn, unit / blocks * keys, keys)(unit % blocks * key_tile);
    });
    for (const Powers& part : partial) sum.noise += part.noise, sum.signal += part.signal;
  }
  return sum.noise / sum.signal;
}

std::optional<PowerCurve> power_curve(const KeyMap& map, const CapacityPower& config, uint64_t seed,
                                      const StopCheck& stop) {
  constexpr double past = 2;
  PowerCurve curve;
  for (int64_t step = 0;; ++step) {
    const int64_t keys =
        std::min(step % 2 == 0 ? int64_t{2} << (step / 2) : int64_t{3} << (step / 2), config.max_keys);
    const int64_t draws = std::clamp(ceil_div(config.pairs, keys * (keys - 1) / 2), fewest_draws, most_draws);
    const std::optional<double> power = interference_power(map, keys, draws, seed, stop);
    if (!power) return std::nullopt;
    // The power is linear in T: interpolating between two points adds no error.
    if (!curve.threshold && *power >= 1) {
      const PowerPoint before = curve.points.empty() ? PowerPoint{1, 0, 0} : curve.points.back();
      const double part = (1 - before.power) / (*power - before.power);
      curve.threshold = static_cast<double>(before.keys - 1) + part * static_cast<double>(keys - before.keys);
    }
    curve.points.push_back({keys, draws, *power});
    if (*power >= past || keys == config.max_keys) return curve;
  }
}

}  // namespace kata
