#include "eval/capacity_certificates.h"

#include <algorithm>
#include <cmath>

#include "config/model_config.h"
#include "nn/language_model.h"

namespace kata {

namespace {

// Complex numbers are quaternions with j = k = 0, and real numbers those with i = 0, too.
struct Quaternion {
  double r = 0, i = 0, j = 0, k = 0;
};

Quaternion operator*(const Quaternion& a, const Quaternion& b) {
  return {a.r * b.r - a.i * b.i - a.j * b.j - a.k * b.k, a.r * b.i + a.i * b.r + a.j * b.k - a.k * b.j,
          a.r * b.j - a.i * b.k + a.j * b.r + a.k * b.i, a.r * b.k + a.i * b.j - a.j * b.i + a.k * b.r};
}
Quaternion operator+(const Quaternion& a, const Quaternion& b) {
  return {a.r + b.r, a.i + b.i, a.j + b.j, a.k + b.k};
}
Quaternion operator-(const Quaternion& a, const Quaternion& b) {
  return {a.r - b.r, a.i - b.i, a.j - b.j, a.k - b.k};
}
Quaternion conjugate(const Quaternion& a) {
  return {a.r, -a.i, -a.j, -a.k};
}

Quaternion load(const double* x, int64_t field) {
  return {x[0], field > 1 ? x[1] : 0, field > 2 ? x[2] : 0, field > 2 ? x[3] : 0};
}
void store(double* x, const Quaternion& value, int64_t field) {
  const double parts[] = {value.r, value.i, value.j, value.k};
  std::copy_n(parts, field, x);
}

// One random isometry, applied to every key.
Keys moved(const KeyMap& map, const Keys& keys, const Philox& numbers) {
  Keys out = keys;
  const int64_t d = keys.width, groups = map.config.groups, part = d / groups, field = map.field();
  std::vector<int64_t> order(static_cast<size_t>(d));
  for (int64_t j = 0; j < d; ++j) order[j] = j;
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return numbers.bits(a) < numbers.bits(b); });
  std::vector<std::vector<double>> matrices;
  const int64_t size = map.isometry == Isometry::space ? d - 1 : part / field;
  for (int64_t g = 0; g < groups; ++g)
    matrices.push_back(random_unitary(
        size, field, Philox(numbers.bits(static_cast<uint64_t>(g)), static_cast<uint64_t>(d))));
  for (int64_t i = 0; i < keys.count(); ++i) {
    const double* x = keys.row(i);
    double* y = out.row(i);
    if (map.isometry == Isometry::permutation) {
      for (int64_t j = 0; j < d; ++j) y[j] = x[order[j]];
      continue;
    }
    for (int64_t g = 0; g < groups; ++g)
      apply_matrix(y + g * part, matrices[map.isometry == Isometry::one_for_all ? 0 : g], x + g * part, size,
                   field);
  }
  return out;
}

// nu of all pairs of keys, [count, count].
std::vector<double> all_scores(const FeatureMap& map, const Keys& keys, bool normalised) {
  Features f;
  std::vector<double> s, scratch;
  make_features(f, map, keys.x.data(), keys.count());
  make_scores(s, f, f, scratch);
  if (normalised)
    for (int64_t i = 0; i < f.rows; ++i)
      for (int64_t j = 0; j < f.rows; ++j) s[i * f.rows + j] /= std::sqrt(f.self[i] * f.self[j]);
  return s;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= most)) most = difference;  // NaN stays
  }
  return most;
}

Keys drawn(const KeyMap& map, int64_t draws, uint64_t seed) {
  return KeySource(seed, KeyUse::certificates, map.width(), 0).take(0, draws);
}

int64_t parameters_with(const CapacityMap& map, int64_t width) {
  ModelConfig model;
  model.hidden = width;
  model.heads = model.layers = model.mlp = 1;
  model.vocab = 2;
  MixerConfig mixer;
  mixer.map = map.map;
  mixer.groups = map.groups;
  mixer.read = "raw";
  model.mixers = {mixer};
  resolve_model(model);
  return LanguageModel(model, DType::f32).parameters().count();
}

}  // namespace

std::vector<double> random_unitary(int64_t size, int64_t field, const Philox& numbers) {
  std::vector<double> matrix(static_cast<size_t>(size * size * field));
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = numbers.normal(i);
  const int64_t row = size * field;
  for (int64_t i = 0; i < size; ++i) {
    double* x = matrix.data() + i * row;
    for (int pass = 0; pass < 2; ++pass)  // the second one removes what rounding left
      for (int64_t k = 0; k < i; ++k) {
        const double* y = matrix.data() + k * row;
        Quaternion along;  // sum_j x_j conj(y_j)
        for (int64_t j = 0; j < row; j += field)
          along = along + load(x + j, field) * conjugate(load(y + j, field));
        for (int64_t j = 0; j < row; j += field)
          store(x + j, load(x + j, field) - along * load(y + j, field), field);
      }
    scale_to_unit(x, row);
  }
  return matrix;
}

void apply_matrix(double* out, const std::vector<double>& matrix, const double* x, int64_t size,
                  int64_t field) {
  for (int64_t i = 0; i < size; ++i) {
    Quaternion sum;
    for (int64_t j = 0; j < size; ++j)
      sum = sum + load(&matrix[(i * size + j) * field], field) * load(x + j * field, field);
    store(out + i * field, sum, field);
  }
}

const char* isometry_name(Isometry isometry) {
  switch (isometry) {
    case Isometry::unitary:
      return "a unitary map";
    case Isometry::per_group:
      return "an orthogonal map per group";
    case Isometry::one_for_all:
      return "one orthogonal map for all groups";
    case Isometry::space:
      return "an orthogonal map of h";
    case Isometry::permutation:
      return "a permutation";
  }
  return "";
}

double isometry_error(const KeyMap& map, int64_t draws, uint64_t seed) {
  const Keys keys = drawn(map, draws, seed);
  const KeySource turns(seed, KeyUse::certificates, map.width(), 1);
  return largest_difference(all_scores(map.map, keys, true),
                            all_scores(map.map, moved(map, keys, turns.numbers()), true));
}

double smallest_score(const KeyMap& map, int64_t draws, uint64_t seed) {
  const std::vector<double> scores = all_scores(map.map, drawn(map, draws, seed), true);
  return *std::min_element(scores.begin(), scores.end());
}

double scale_error(const KeyMap& map, int64_t draws, uint64_t seed) {
  const Keys keys = drawn(map, draws, seed);
  Features k, q;
  std::vector<double> scores, scratch;
  make_features(k, map.map, keys.x.data(), draws);
  const auto weights = [&](double lambda) {
    Keys queries = keys;
    for (double& x : queries.x) x *= lambda;
    make_features(q, map.map, queries.x.data(), draws);
    make_scores(scores, q, k, scratch);
    for (int64_t i = 0; i < draws; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < draws; ++j) sum += scores[i * draws + j];
      for (int64_t j = 0; j < draws; ++j) scores[i * draws + j] /= sum;
    }
    return scores;
  };
  const std::vector<double> unscaled = weights(1);
  double most = 0;
  for (const double lambda : {1e-3, 0.3, 7.0, 1e3}) {
    const double difference = largest_difference(weights(lambda), unscaled);
    if (!(difference <= most)) most = difference;
  }
  return most;
}

int64_t added_parameters(const KeyMap& map) {
  return parameters_with(map.config, map.width()) - parameters_with({"identity", 1}, map.width());
}

}  // namespace kata
