#include "eval/capacity_packing.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/matmul.h"

namespace kata {

namespace {

constexpr int64_t offered_rows = 256;  // candidates that meet the kept keys at a time

double& raise(double& value, double other) {
  return value = std::max(value, other);
}

// Keys, their unit features, and the gradient of the soft maximum of their |nu| on both.
class SoftMaximum {
 public:
  SoftMaximum(const FeatureMap& map, int64_t keys)
      : map_(map), keys_(keys), n_(map.features()), du_(static_cast<size_t>(keys * n_)) {}

  // Largest |nu| of two of the keys.
  double load(const Keys& keys) {
    make_features(u_, map_, keys.x.data(), keys_);
    for (int64_t i = 0; i < keys_; ++i)
      for (int64_t j = 0; j < n_; ++j) u_.f[i * n_ + j] /= std::sqrt(u_.self[i]);
    make_scores(nu_, u_, u_, scratch_);
    double worst = 0;
    for (int64_t i = 0; i < keys_; ++i)
      for (int64_t j = 0; j < i; ++j) raise(worst, std::abs(nu_[i * keys_ + j]));
    return worst;
  }

  // dx = gradient of log sum_{i != j} exp(hardness |nu_ij|) at the keys of the last load, up to a factor.
  void gradient(Keys& dx, const Keys& keys, double worst, double hardness) {
    for (int64_t i = 0; i < keys_; ++i)
      for (int64_t j = 0; j < keys_; ++j) {
        double& nu = nu_[i * keys_ + j];
        const double weight = i == j ? 0 : std::exp(hardness * (std::abs(nu) - worst));
        nu = nu < 0 ? -weight : weight;
      }
    cpu::matmul_backward_input<double>(du_.data(), nu_.data(), u_.f.data(), false,
                                       {keys_, keys_, n_, n_, keys_});
    // Through u = f / |f|.
    for (int64_t i = 0; i < keys_; ++i) {
      double* d = du_.data() + i * n_;
      const double* u = u_.f.data() + i * n_;
      double along = 0;
      for (int64_t j = 0; j < n_; ++j) along += d[j] * u[j];
      for (int64_t j = 0; j < n_; ++j) d[j] = (d[j] - along * u[j]) / std::sqrt(u_.self[i]);
    }
    map_scratch_.resize(static_cast<size_t>(cpu::feature_map_scratch(map_)));
    cpu::feature_map_backward<double>(dx.x.data(), du_.data(), keys.x.data(), map_, keys_, map_.width,
                                      map_scratch_.data());
  }

 private:
  FeatureMap map_;
  int64_t keys_, n_;
  Features u_;
  std::vector<double> nu_, du_, scratch_, map_scratch_;
};

double longest_row(const Keys& keys) {
  double most = 0;
  for (int64_t i = 0; i < keys.count(); ++i) {
    double sum = 0;
    for (int64_t j = 0; j < keys.width; ++j) sum += keys.row(i)[j] * keys.row(i)[j];
    raise(most, sum);
  }
  return std::sqrt(most);
}

}  // namespace

GreedyPacking::GreedyPacking(const FeatureMap& map, double limit, bool strict)
    : map_(map), limit_(limit), strict_(strict), kept_{map.width, {}} {}

void GreedyPacking::offer(const Keys& keys) {
  for (int64_t i = 0; i < keys.count(); i += offered_rows)
    offer_block(keys.row(i), std::min(offered_rows, keys.count() - i));
}

void GreedyPacking::offer_block(const double* keys, int64_t rows) {
  Features offered;
  make_features(offered, map_, keys, rows);
  // The worst score of each candidate, with each tile of kept keys and then with the candidates before it.
  const int64_t tiles = ceil_div(kept_.count(), key_tile);
  std::vector<double> worst(static_cast<size_t>(tiles * rows), 0.0);
  parallel_for(tiles, [&](int64_t tile) {
    Features kept;
    std::vector<double> s, scratch;
    make_features(kept, map_, kept_.row(tile * key_tile),
                  std::min(key_tile, kept_.count() - tile * key_tile));
    make_scores(s, kept, offered, scratch);
    for (int64_t i = 0; i < kept.rows; ++i)
      for (int64_t j = 0; j < rows; ++j)
        raise(worst[tile * rows + j], std::abs(s[i * rows + j]) / std::sqrt(kept.self[i] * offered.self[j]));
  });
  std::vector<double> s, scratch;
  make_scores(s, offered, offered, scratch);
  std::vector<int64_t> taken;
  for (int64_t j = 0; j < rows; ++j) {
    double most = 0;
    for (int64_t tile = 0; tile < tiles; ++tile) raise(most, worst[tile * rows + j]);
    for (const int64_t i : taken)
      raise(most, std::abs(s[i * rows + j]) / std::sqrt(offered.self[i] * offered.self[j]));
    if (!fits(most)) continue;
    taken.push_back(j);
    kept_.append(keys + j * map_.width);
  }
}

std::optional<int64_t> greedy_count(const KeyMap& map, double limit, bool strict, const KeySource& source,
                                    int64_t candidates, const StopCheck& stop) {
  GreedyPacking packing(map.map, limit, strict);
  for (int64_t i = 0; i < candidates; i += offered_rows) {
    if (stop()) return std::nullopt;
    packing.offer(source.take(i, std::min(offered_rows, candidates - i)));
  }
  return packing.kept().count();
}

Keys greedy_spread(int64_t keys, int64_t candidates, const KeySource& source) {
  const FeatureMap raw{MapKind::identity, source.take(0, 1).width, 1};
  Keys kept = source.take(0, 1);
  Features a, b;
  std::vector<double> s, scratch;
  for (int64_t i = 1; i < keys; ++i) {
    const Keys drawn = source.take(1 + (i - 1) * candidates, candidates);
    make_features(a, raw, drawn.x.data(), candidates);
    make_features(b, raw, kept.x.data(), kept.count());
    make_scores(s, a, b, scratch);
    int64_t best = 0;
    double least = INFINITY;
    for (int64_t c = 0; c < candidates; ++c) {
      double most = 0;
      for (int64_t j = 0; j < b.rows; ++j) raise(most, std::abs(s[c * b.rows + j]));
      if (most < least) least = most, best = c;
    }
    kept.append(drawn.row(best));
  }
  return kept;
}

Spread spread_keys(const FeatureMap& map, const Keys& start, int64_t steps, const StopCheck& stop) {
  // The soft maximum hardens, and the steps get shorter, by a constant factor each.
  constexpr double soft = 10, hard = 3000, long_step = 0.2, short_step = 2e-4;
  SoftMaximum objective(map, start.count());
  Spread best{start, objective.load(start)};
  double worst = best.worst;
  Keys keys = start, dx = start;
  for (int64_t step = 0; step < steps; ++step) {
    if (stop()) break;
    const double part = static_cast<double>(step) / static_cast<double>(steps);
    objective.gradient(dx, keys, worst, soft * std::pow(hard / soft, part));
    const double longest = longest_row(dx);
    if (!(longest > 0)) break;
    const double rate = long_step * std::pow(short_step / long_step, part) / longest;
    for (size_t i = 0; i < keys.x.size(); ++i) keys.x[i] -= rate * dx.x[i];
    for (int64_t i = 0; i < keys.count(); ++i) scale_to_unit(keys.row(i), keys.width);
    worst = objective.load(keys);
    if (worst < best.worst) best = {keys, worst};
  }
  return best;
}

}  // namespace kata
