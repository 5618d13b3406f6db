// Rows scaled to a feature of length one, with the features written out (ops/unit_feature.h has the formula).
#pragma once

#include "ops/feature_map.h"
#include "ops/oracle/scalar.h"

namespace kata::oracle {

// f(x) of the first-order maps.
template <class S>
std::vector<S> first_order_feature(const FeatureMap& map, const std::vector<S>& x) {
  using std::sqrt;
  std::vector<S> f = x;
  if (map.kind == MapKind::orthant)
    for (S& value : f) value = max0(value) + 1e-6;
  if (map.kind == MapKind::lorentz) {
    S squares = 0;
    for (size_t j = 0; j + 1 < x.size(); ++j) squares += x[j] * x[j];
    const S norm = real(squares) > 0 ? sqrt(squares) : S(0);
    f.back() = norm * (1.0 + x.back() * x.back());
  }
  return f;
}

// |f(x)|^2 of the psd family: the squares of every entry of every x_i x_i^T, or of their sum.
template <class S>
S product_feature_squares(const FeatureMap& map, const std::vector<S>& x) {
  const size_t groups = size_t(map.groups), part = x.size() / groups;
  S squares = 0;
  for (size_t a = 0; a < part; ++a)
    for (size_t b = 0; b < part; ++b) {
      S sum = 0;
      for (size_t i = 0; i < groups; ++i) {
        const S entry = x[i * part + a] * x[i * part + b];
        sum += entry;
        if (map.kind != MapKind::psd_sum) squares += entry * entry;
      }
      if (map.kind == MapKind::psd_sum) squares += sum * sum;
    }
  return squares;
}

// One row x [d].
template <class S>
std::vector<S> unit_feature_row(const FeatureMap& map, const std::vector<S>& x, double scale) {
  using std::sqrt;
  const bool first_order =
      map.kind == MapKind::identity || map.kind == MapKind::orthant || map.kind == MapKind::lorentz;
  std::vector<S> u = first_order ? first_order_feature(map, x) : x;
  S squares = 0;
  if (first_order)
    for (const S& value : u) squares += value * value;
  else
    squares = product_feature_squares(map, x);
  if (real(squares) <= 1e-20) return std::vector<S>(x.size(), S(0));
  const S length = first_order ? sqrt(squares) : sqrt(sqrt(squares));
  for (S& value : u) value *= scale / length;
  return u;
}

// x: [rows, d].
template <class S>
std::vector<S> unit_feature(const FeatureMap& map, const std::vector<S>& x, double scale) {
  std::vector<S> u;
  const auto d = static_cast<std::ptrdiff_t>(map.width);
  for (auto row = x.begin(); row != x.end(); row += d) {
    const auto one = unit_feature_row<S>(map, std::vector<S>(row, row + d), scale);
    u.insert(u.end(), one.begin(), one.end());
  }
  return u;
}

}  // namespace kata::oracle
