// The feature maps f of the linear mixers (MATH 1), as explicit features.
//
//   identity  f(x) = x                                        n = d
//   orthant   f(x) = max(x, 0) + 1e-6                         n = d
//   lorentz   x = (h, tau), f(x) = (h, |h| (1 + tau^2))       n = d
//   psd       per group of E = d / M: x_a^2 (a = 0 .. E-1),
//             then sqrt(2) x_a x_b for a = 1 .. E-1, b < a    n = M E (E + 1) / 2
//   psd_sum   the packing of psd, summed over the groups      n = E (E + 1) / 2
//
// Every form of the mixers sees sqrt(sigma) x, so that states hand over; the op below does so too:
// features = f(sqrt(sigma) x). At kinks (x = 0 of orthant, h = 0 of lorentz) the gradient of the |.| or
// max is 0. Training never builds features where a score suffices: <f(x), f(y)> is a dot product for the
// first-order maps, and a sum of squared dot products for the psd family (ops/cpu/score.h).
#pragma once

#include <cmath>

#include "ops/dispatch.h"

namespace kata {

enum class MapKind { identity, orthant, lorentz, psd, psd_sum };

struct FeatureMap {
  MapKind kind = MapKind::identity;
  int64_t width = 0;   // d
  int64_t groups = 1;  // M; 1 unless psd or psd_sum

  int64_t part() const { return width / groups; }  // E
  // f is homogeneous of order 1 or not at all, and a score is one dot product of features.
  bool first_order() const { return kind != MapKind::psd && kind != MapKind::psd_sum; }
  int64_t features() const {  // n
    if (first_order()) return width;
    const int64_t packed = part() * (part() + 1) / 2;
    return kind == MapKind::psd ? groups * packed : packed;
  }
  double sigma() const { return first_order() ? 1 : 1 / std::sqrt(static_cast<double>(part())); }
};

inline void check(const char* op, const FeatureMap& map) {
  KATA_CHECK(map.width >= 1 && map.groups >= 1 && map.width % map.groups == 0, "{}: width {} in {} groups",
             op, map.width, map.groups);
  KATA_CHECK(map.groups == 1 || !map.first_order(), "{}: {} groups of a map without groups", op, map.groups);
}

namespace cpu {
// f: [rows, n], x and dx: [rows, d] with rows a stride apart.
template <class T>
void feature_map_forward(T* f, const T* x, const FeatureMap& map, int64_t rows, int64_t x_stride);
template <class T>
void feature_map_backward(T* dx, const T* df, const T* x, const FeatureMap& map, int64_t rows,
                          int64_t x_stride);
}  // namespace cpu

// f: [rows, n]; x: [rows, d], rows may be strided.
inline void feature_map_forward(Context& ctx, const Tensor& f, const Tensor& x, const FeatureMap& map) {
  check("feature_map", map);
  require_shape("feature_map", "x", x, {x.dim(0), map.width}, x.dtype());
  require("feature_map", "f", f, {x.dim(0), map.features()}, x.dtype());
  if (ctx.planning()) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::feature_map_forward<T>(f.as<T>(), x.as<T>(), map, x.dim(0), x.stride(0));
  });
}

// dx = (laid out as x).
inline void feature_map_backward(Context& ctx, const Tensor& dx, const Tensor& df, const Tensor& x,
                                 const FeatureMap& map) {
  check("feature_map_backward", map);
  require_shape("feature_map_backward", "x", x, {x.dim(0), map.width}, x.dtype());
  require_shape("feature_map_backward", "dx", dx, x.shape(), x.dtype());
  KATA_CHECK(dx.stride(0) == x.stride(0), "feature_map_backward: dx must be laid out as x");
  require("feature_map_backward", "df", df, {x.dim(0), map.features()}, x.dtype());
  if (ctx.planning()) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::feature_map_backward<T>(dx.as<T>(), df.as<T>(), x.as<T>(), map, x.dim(0), x.stride(0));
  });
}

}  // namespace kata
