// Keys, their features and their scores, as the capacity suite measures them.
//
// A score is the dot product of two explicit features (ops/feature_map.h), in double. The normalised score of
// two keys is nu(x, y) = score(x, y) / sqrt(score(x, x) score(y, y)); with it a map's scale drops out.
#pragma once

#include <string>
#include <vector>

#include "base/philox.h"
#include "config/capacity_config.h"
#include "ops/feature_map.h"

namespace kata {

// What leaves every score of a map as it is, applied to both keys.
enum class Isometry {
  unitary,      // a unitary map over the map's field: O(d), U(d/2), Sp(d/4)
  per_group,    // an orthogonal map per group
  one_for_all,  // one orthogonal map, the same in every group
  space,        // an orthogonal map of h = x_1 .. x_(d-1); tau stays
  permutation   // of the coordinates
};

// One map of the suite at one width.
struct KeyMap {
  std::string label;  // "psd M 2"
  CapacityMap config;
  FeatureMap map;
  bool cone = true;      // every score of two features is at least 0
  bool squares = false;  // a score is a sum of squared dot products
  double power = 0;      // per key, in expectation (capacity_theory.h)
  Isometry isometry = Isometry::unitary;

  int64_t width() const { return map.width; }
  int64_t field() const { return coordinate_size(config.map); }
};

KeyMap key_map(const CapacityMap& config, int64_t width);
std::string map_label(const CapacityMap& config);

struct Keys {
  int64_t width = 0;
  std::vector<double> x;  // [count, width]

  int64_t count() const { return static_cast<int64_t>(x.size()) / width; }
  double* row(int64_t i) { return x.data() + i * width; }
  const double* row(int64_t i) const { return x.data() + i * width; }
  void append(const double* key) { x.insert(x.end(), key, key + width); }
};

void scale_to_unit(double* key, int64_t width);

// Uses of random numbers in the suite; keys are a function of seed, use, width, set and number alone, so that
// all maps see the same keys.
enum class KeyUse : uint64_t { power = 1, welch, greedy, packing, wall, descent, supports, certificates };

class KeySource {
 public:
  // `set` tells apart sets of keys of one use and width.
  KeySource(uint64_t seed, KeyUse use, int64_t width, int64_t set);

  // Keys [first, first + count) of the stream, each uniform on the unit sphere.
  Keys take(int64_t first, int64_t count) const;
  // The same with a random number of positive coordinates, the others 0.
  Keys take_sparse(int64_t first, int64_t count) const;
  const Philox& numbers() const { return numbers_; }

 private:
  int64_t width_;
  Philox numbers_;
};

// d + 1 unit keys of width d, every two of which have the dot product -1/d.
Keys simplex_keys(int64_t width);
Keys basis_keys(int64_t width);
// The basis and the rows of a Hadamard matrix: 2 d keys with dot products of at most 1/sqrt(d). Empty unless
// d is a power of two.
Keys basis_and_hadamard_keys(int64_t width);

// Features of a few keys and their scores with themselves.
struct Features {
  int64_t rows = 0;
  int64_t n = 0;
  std::vector<double> f;     // [rows, n]
  std::vector<double> self;  // [rows]
};
constexpr int64_t key_tile = 128;  // rows that are made and multiplied at a time

void make_features(Features& out, const FeatureMap& map, const double* keys, int64_t rows);
// out [a.rows, b.rows] = scores; scratch is resized as needed.
void make_scores(std::vector<double>& out, const Features& a, const Features& b,
                 std::vector<double>& scratch);

// The largest |nu| of two different keys; 0 for a single one.
double worst_score(const FeatureMap& map, const Keys& keys);

}  // namespace kata
