// The feature maps written out, one vector at a time (MATH 1). Shares nothing with the forms but the names.
#pragma once

#include "ops/feature_map.h"
#include "ops/oracle/scalar.h"

namespace kata::oracle {

inline double feature_sigma(const FeatureMap& map) {
  const double part = double(map.width) / double(map.groups);
  return map.kind == MapKind::psd || map.kind == MapKind::psd_sum ? 1 / std::sqrt(part) : 1;
}

// x_a x_b packed: the squares, then sqrt(2) x_a x_b for a > b.
template <class S>
std::vector<S> packed_square(const S* x, size_t part) {
  std::vector<S> f;
  for (size_t a = 0; a < part; ++a) f.push_back(x[a] * x[a]);
  for (size_t a = 0; a < part; ++a)
    for (size_t b = 0; b < a; ++b) f.push_back(std::sqrt(2.0) * x[a] * x[b]);
  return f;
}

// f(sqrt(sigma) x) of one vector x [d].
template <class S>
std::vector<S> features(const FeatureMap& map, const S* x_unscaled) {
  using std::sqrt;
  const size_t d = size_t(map.width), groups = size_t(map.groups), part = d / groups;
  std::vector<S> x(x_unscaled, x_unscaled + d), f;
  for (S& value : x) value *= std::sqrt(feature_sigma(map));
  switch (map.kind) {
    case MapKind::identity:
      return x;
    case MapKind::orthant:
      for (const S& value : x) f.push_back(max0(value) + 1e-6);
      return f;
    case MapKind::lorentz: {
      S squares = 0;
      for (size_t j = 0; j + 1 < d; ++j) squares += x[j] * x[j];
      f = x;
      const S norm = real(squares) > 0 ? sqrt(squares) : S(0);
      f[d - 1] = norm * (1.0 + x[d - 1] * x[d - 1]);
      return f;
    }
    case MapKind::psd:
      for (size_t i = 0; i < groups; ++i)
        for (const S& value : packed_square(&x[i * part], part)) f.push_back(value);
      return f;
    case MapKind::psd_sum:
      f.assign(part * (part + 1) / 2, S(0));
      for (size_t i = 0; i < groups; ++i) {
        const std::vector<S> one = packed_square(&x[i * part], part);
        for (size_t p = 0; p < f.size(); ++p) f[p] += one[p];
      }
      return f;
  }
  return f;
}

}  // namespace kata::oracle
