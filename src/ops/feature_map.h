// The feature maps f of the linear mixers (MATH 1), as explicit features.
//
//   identity  f(x) = x                                        n = d
//   orthant   f(x) = max(x, 0) + 1e-6                         n = d
//   lorentz   x = (h, tau), f(x) = (h, |h| (1 + tau^2))       n = d
//   psd       per group of E = d / M: x_a^2 (a = 0 .. E-1),
//             then sqrt(2) x_a x_b for a = 1 .. E-1, b < a    n = M E (E + 1) / 2
//   psd_sum   the packing of psd, summed over the groups      n = E (E + 1) / 2
//   hermitian     x as d / 2 complex numbers z, x_2j + x_2j+1 i: the packing of z z^H            n = (d /
//   2)^2 quaternionic  x as d / 4 quaternions z, (x_4j .. x_4j+3) = 1, i, j, k: likewise    n = d / 4 (d / 2
//   - 1)
//
// z z^H packed: |z_a|^2 and sqrt(2) Re z_a z_b* for a > b in the order of psd, then sqrt(2) times the i part
// of z_a z_b* for a > b, and so on. <f(x), f(y)> = |<x, y>|^2.
//
// Every form of the mixers sees sqrt(sigma) x, so that states hand over; the op below does so too:
// features = f(sqrt(sigma) x). At kinks (x = 0 of orthant, h = 0 of lorentz) the gradient of the |.| or
// max is 0. Training never builds features where a score suffices: <f(x), f(y)> is a dot product for the
// first-order maps, and a sum of squared dot products for the psd family (ops/cpu/score.h).
#pragma once

#include <cmath>
#include <optional>

#include "ops/dispatch.h"

namespace kata {

enum class MapKind { identity, orthant, lorentz, psd, psd_sum, hermitian, quaternionic };

struct FeatureMap {
  MapKind kind = MapKind::identity;
  int64_t width = 0;                 // d
  int64_t groups = 1;                // M; 1 unless psd or psd_sum
  std::optional<double> scale = {};  // of a dot product, instead of the map's own sigma

  // Real parts that a vector is cut into: groups, or the parts of a complex number or a quaternion.
  constexpr int64_t parts() const {
    return kind == MapKind::hermitian ? 2 : kind == MapKind::quaternionic ? 4 : groups;
  }
  constexpr int64_t part() const { return width / parts(); }  // E
  // Components of a packed entry: one, or the parts of a number.
  constexpr int64_t components() const {
    return kind == MapKind::psd_sum || kind == MapKind::psd ? 1 : parts();
  }
  // f is homogeneous of order 1 or not at all, and a score is one dot product of features. Else f is
  // homogeneous of order 2 and a score is a sum of squared dot products.
  constexpr bool first_order() const {
    return kind == MapKind::identity || kind == MapKind::orthant || kind == MapKind::lorentz;
  }
  constexpr int64_t features() const {  // n
    if (first_order()) return width;
    const int64_t packed = part() * (part() + 1) / 2;
    if (kind == MapKind::psd) return groups * packed;
    return packed + (components() - 1) * (packed - part());
  }
  double sigma() const {
    if (scale) return *scale;
    if (first_order()) return 1;
    return 1 /
           std::sqrt(static_cast<double>(kind == MapKind::psd || kind == MapKind::psd_sum ? part() : width));
  }
};

inline void check(const char* op, const FeatureMap& map) {
  KATA_CHECK(map.width >= 1 && map.groups >= 1 && map.width % map.groups == 0, "{}: width {} in {} groups",
             op, map.width, map.groups);
  KATA_CHECK(map.groups == 1 || map.kind == MapKind::psd || map.kind == MapKind::psd_sum,
             "{}: {} groups of a map without groups", op, map.groups);
  KATA_CHECK(map.width % map.parts() == 0, "{}: width {} in parts of {}", op, map.width, map.parts());
}

namespace cpu {
// f: [rows, n], x and dx: [rows, d] with rows a stride apart; scratch: feature_map_scratch elements.
template <class T>
void feature_map_forward(T* f, const T* x, const FeatureMap& map, int64_t rows, int64_t x_stride, T* scratch);
template <class T>
void feature_map_backward(T* dx, const T* df, const T* x, const FeatureMap& map, int64_t rows,
                          int64_t x_stride, T* scratch);
int64_t feature_map_scratch(const FeatureMap&);
}  // namespace cpu

namespace cuda {
template <class T>
void feature_map_forward(GpuStream stream, T* f, const T* x, const FeatureMap& map, int64_t rows,
                         int64_t x_stride);
template <class T>
void feature_map_backward(GpuStream stream, T* dx, const T* df, const T* x, const FeatureMap& map,
                          int64_t rows, int64_t x_stride);
}  // namespace cuda

// Scratch of the CPU; the GPU wants none.
inline Tensor take_feature_map_scratch(Context& ctx, const FeatureMap& map, DType dtype) {
  return by_device(
      ctx, [&] { return ctx.arena.take("feature_map scratch", dtype, {cpu::feature_map_scratch(map)}); },
      [] { return Tensor(); });
}

// f: [rows, n]; x: [rows, d], rows may be strided.
inline void feature_map_forward(Context& ctx, const Tensor& f, const Tensor& x, const FeatureMap& map) {
  check("feature_map", map);
  require_shape("feature_map", "x", x, {x.dim(0), map.width}, x.dtype());
  require("feature_map", "f", f, {x.dim(0), map.features()}, x.dtype());
  Arena::Scope scope(ctx.arena);
  const Tensor scratch = take_feature_map_scratch(ctx, map, x.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::feature_map_forward<T>(f.as<T>(), x.as<T>(), map, x.dim(0), x.stride(0), scratch.as<T>());
      },
      [&]<class T>() {
        cuda::feature_map_forward<T>(ctx.stream(), f.as<T>(), x.as<T>(), map, x.dim(0), x.stride(0));
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
  Arena::Scope scope(ctx.arena);
  const Tensor scratch = take_feature_map_scratch(ctx, map, x.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::feature_map_backward<T>(dx.as<T>(), df.as<T>(), x.as<T>(), map, x.dim(0), x.stride(0),
                                     scratch.as<T>());
      },
      [&]<class T>() {
        cuda::feature_map_backward<T>(ctx.stream(), dx.as<T>(), df.as<T>(), x.as<T>(), map, x.dim(0),
                                      x.stride(0));
      });
}

}  // namespace kata
