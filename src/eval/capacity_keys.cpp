#include "eval/capacity_keys.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "eval/capacity_theory.h"
#include "ops/matmul.h"

namespace kata {

namespace {

// What the suite knows of a map; every name of map_names() has its row.
struct MapRow {
  const char* name;
  MapKind kind;
  bool cone;
  bool squares;
  Isometry isometry;
  double (*power)(const FeatureMap&);
};

constexpr MapRow map_rows[] = {
    {"identity", MapKind::identity, false, false, Isometry::unitary,
     [](const FeatureMap& map) { return raw_power(map.width); }},
    {"orthant", MapKind::orthant, true, false, Isometry::permutation,
     [](const FeatureMap& map) { return orthant_power(map.width); }},
    {"lorentz", MapKind::lorentz, true, false, Isometry::space,
     [](const FeatureMap& map) { return lorentz_power(map.width); }},
    {"psd", MapKind::psd, true, true, Isometry::per_group,
     [](const FeatureMap& map) { return psd_power(map.groups, map.width); }},
    {"psd_sum", MapKind::psd_sum, true, true, Isometry::one_for_all,
     [](const FeatureMap& map) { return psd_sum_power(map.groups, map.width); }},
    {"hermitian", MapKind::hermitian, true, true, Isometry::unitary,
     [](const FeatureMap& map) { return squares_power(2, map.width); }},
    {"quaternionic", MapKind::quaternionic, true, true, Isometry::unitary,
     [](const FeatureMap& map) { return squares_power(4, map.width); }},
};

}  // namespace

std::string map_label(const CapacityMap& config) {
  return has_groups(config.map) ? fmt::format("{} M {}", config.map, config.groups) : config.map;
}

KeyMap key_map(const CapacityMap& config, int64_t width) {
  const MapRow* row = std::find_if(std::begin(map_rows), std::end(map_rows),
                                   [&](const MapRow& r) { return config.map == r.name; });
  KATA_CHECK(row != std::end(map_rows), "the capacity suite knows no map '{}'", config.map);
  KeyMap out;
  out.label = map_label(config);
  out.config = config;
  out.map = {row->kind, width, config.groups};
  out.cone = row->cone;
  out.squares = row->squares;
  out.power = row->power(out.map);
  out.isometry = row->isometry;
  return out;
}

void scale_to_unit(double* key, int64_t width) {
  double sum = 0;
  for (int64_t j = 0; j < width; ++j) sum += key[j] * key[j];
  const double norm = std::sqrt(sum);
  if (norm > 0)
    for (int64_t j = 0; j < width; ++j) key[j] /= norm;
}

KeySource::KeySource(uint64_t seed, KeyUse use, int64_t width, int64_t set)
    : width_(width),
      // Above every stream of base/philox.h; sets stay below 2^32.
      numbers_(seed, static_cast<uint64_t>(use) << 48 | static_cast<uint64_t>(width) << 32 |
                         static_cast<uint64_t>(set)) {}

Keys KeySource::take(int64_t first, int64_t count) const {
  Keys keys{width_, std::vector<double>(static_cast<size_t>(count * width_))};
  parallel_blocks(count, key_tile, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double* key = keys.row(i);
      const auto start = static_cast<uint64_t>((first + i) * width_);
      for (int64_t j = 0; j < width_; ++j) key[j] = numbers_.normal(start + static_cast<uint64_t>(j));
      scale_to_unit(key, width_);
    }
  });
  return keys;
}

Keys KeySource::take_sparse(int64_t first, int64_t count) const {
  Keys keys = take(first, count);
  std::vector<int64_t> order(static_cast<size_t>(width_));
  // Its own half of the counter's range.
  constexpr uint64_t choices = uint64_t{1} << 63;
  for (int64_t i = 0; i < count; ++i) {
    const auto start = choices + static_cast<uint64_t>((first + i) * (width_ + 1));
    const auto positive = static_cast<int64_t>(numbers_.below(start, static_cast<uint64_t>(width_))) + 1;
    for (int64_t j = 0; j < width_; ++j) order[j] = j;
    for (int64_t j = 0; j < positive; ++j) {
      const auto left = static_cast<uint64_t>(width_ - j);
      std::swap(order[j],
                order[j + static_cast<int64_t>(numbers_.below(start + 1 + static_cast<uint64_t>(j), left))]);
    }
    double* key = keys.row(i);
    for (int64_t j = 0; j < width_; ++j) {
      double& x = key[order[j]];
      x = j < positive ? std::abs(x) : 0;
    }
    scale_to_unit(key, width_);
  }
  return keys;
}

// Corner k + 1 repeats corner k up to a coordinate more: v_k = (c_0 .. c_(k-1), r_k, 0 ..), and the last one
// is the negative rest. Every later corner takes -r_k / (d - k) in coordinate k, which makes the sum 0.
Keys simplex_keys(int64_t width) {
  const int64_t d = width;
  Keys keys{d, std::vector<double>(static_cast<size_t>((d + 1) * d), 0.0)};
  for (int64_t k = 0; k < d; ++k) {
    double rest = 1;
    for (int64_t j = 0; j < k; ++j) rest -= keys.row(k)[j] * keys.row(k)[j];
    const double r = std::sqrt(rest);
    keys.row(k)[k] = r;
    for (int64_t i = k + 1; i <= d; ++i) keys.row(i)[k] = -r / static_cast<double>(d - k);
  }
  for (int64_t i = 0; i <= d; ++i) scale_to_unit(keys.row(i), d);
  return keys;
}

Keys basis_keys(int64_t width) {
  Keys keys{width, std::vector<double>(static_cast<size_t>(width * width), 0.0)};
  for (int64_t i = 0; i < width; ++i) keys.row(i)[i] = 1;
  return keys;
}

Keys basis_and_hadamard_keys(int64_t width) {
  if ((width & (width - 1)) != 0) return {width, {}};
  Keys keys = basis_keys(width);
  std::vector<double> row(static_cast<size_t>(width));
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j < width; ++j)
      row[j] = (__builtin_popcountll(static_cast<uint64_t>(i & j)) % 2 == 0 ? 1 : -1) /
               std::sqrt(static_cast<double>(width));
    keys.append(row.data());
  }
  return keys;
}

void make_features(Features& out, const FeatureMap& map, const double* keys, int64_t rows) {
  check("capacity", map);
  out.rows = rows;
  out.n = map.features();
  out.f.resize(static_cast<size_t>(rows * out.n));
  out.self.assign(static_cast<size_t>(rows), 0);
  std::vector<double> scratch(static_cast<size_t>(cpu::feature_map_scratch(map)));
  cpu::feature_map_forward<double>(out.f.data(), keys, map, rows, map.width, scratch.data());
  for (int64_t r = 0; r < rows; ++r) {
    const double* f = out.f.data() + r * out.n;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < out.n; ++j) sum += f[j] * f[j];
    out.self[r] = sum;
  }
}

void make_scores(std::vector<double>& out, const Features& a, const Features& b,
                 std::vector<double>& scratch) {
  const MatmulSize size{a.rows, b.rows, a.n, a.n, b.rows};
  out.resize(static_cast<size_t>(a.rows * b.rows));
  double* transposed = nullptr;
  if (cpu::matmul_transposes(size)) {
    scratch.resize(static_cast<size_t>(b.rows * b.n));
    transposed = scratch.data();
  }
  cpu::matmul_forward<double>(out.data(), a.f.data(), b.f.data(), nullptr, 0, transposed, size);
}

double worst_score(const FeatureMap& map, const Keys& keys) {
  const int64_t tiles = ceil_div(keys.count(), key_tile);
  std::vector<double> worst(static_cast<size_t>(tiles), 0.0);
  parallel_for(tiles, [&](int64_t tile) {
    Features a, b;
    std::vector<double> s, scratch;
    const int64_t i0 = tile * key_tile;
    make_features(a, map, keys.row(i0), std::min(key_tile, keys.count() - i0));
    for (int64_t j0 = 0; j0 <= i0; j0 += key_tile) {
      make_features(b, map, keys.row(j0), std::min(key_tile, keys.count() - j0));
      make_scores(s, a, b, scratch);
      for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j < b.rows && j0 + j < i0 + i; ++j)
          worst[tile] = std::max(worst[tile], std::abs(s[i * b.rows + j]) / std::sqrt(a.self[i] * b.self[j]));
    }
  });
  double most = 0;
  for (const double w : worst) most = std::max(most, w);
  return most;
}

}  // namespace kata
