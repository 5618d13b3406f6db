// The feature maps written out, one vector at a time (MATH 1). Shares nothing with the forms but the names.
#pragma once

#include <array>

#include "ops/feature_map.h"
#include "ops/oracle/scalar.h"

namespace kata::oracle {

inline double feature_sigma(const FeatureMap& map) {
  if (map.scale) return *map.scale;
  if (map.kind == MapKind::hermitian || map.kind == MapKind::quaternionic)
    return 1 / std::sqrt(double(map.width));
  const double part = double(map.width) / double(map.groups);
  return map.kind == MapKind::psd || map.kind == MapKind::psd_sum ? 1 / std::sqrt(part) : 1;
}

// The Hamilton product x conj(y) of quaternions; complex numbers have no j and k part.
template <class S>
std::array<S, 4> times_conjugate(const std::array<S, 4>& x, const std::array<S, 4>& y) {
  return {x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3],
          x[1] * y[0] - x[0] * y[1] - x[2] * y[3] + x[3] * y[2],
          x[2] * y[0] - x[0] * y[2] - x[3] * y[1] + x[1] * y[3],
          x[3] * y[0] - x[0] * y[3] - x[1] * y[2] + x[2] * y[1]};
}

// z z^H packed, z of numbers with `parts` real parts each.
template <class S>
std::vector<S> packed_hermitian(const std::vector<S>& x, size_t parts) {
  std::vector<std::array<S, 4>> z(x.size() / parts);
  for (size_t i = 0; i < x.size(); ++i) z[i / parts][i % parts] = x[i];
  std::vector<S> f;
  for (const auto& number : z) f.push_back(times_conjugate(number, number)[0]);
  for (size_t component = 0; component < parts; ++component)
    for (size_t a = 0; a < z.size(); ++a)
      for (size_t b = 0; b < a; ++b) f.push_back(std::sqrt(2.0) * times_conjugate(z[a], z[b])[component]);
  return f;
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
    case MapKind::hermitian:
      return packed_hermitian(x, 2);
    case MapKind::quaternionic:
      return packed_hermitian(x, 4);
  }
  return f;
}

}  // namespace kata::oracle
