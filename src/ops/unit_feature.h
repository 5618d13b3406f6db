// Rows scaled to a feature of length one: the keys and queries of the delta rule (MATH 4).
//
// With f the feature map (ops/feature_map.h) of x itself, without its sigma:
//
//   identity, orthant, lorentz   u = scale f(x) / |f(x)|                      so |u| = scale
//   psd                          u = scale x (sum_i |x_i|^4)^(-1/4)           so |f(u)| = scale^2
//   psd_sum                      u = scale x (sum_ij (x_i . x_j)^2)^(-1/4)    so |f(u)| = scale^2
//   hermitian, quaternionic      as psd with one group                        likewise
//
// x_i are the groups of x. Where |f(x)|^2 <= 1e-20, u = 0 and the gradient is 0. At kinks (x = 0 in orthant)
// the gradient is that of ops/feature_map.h; h = 0 in lorentz has f = 0.
//
// backward, with b = f(x) of the first-order maps, b = x in the psd family, and u = scale b / N(b):
//   db = (scale / N) (du - <du, b> w)        dx = f'(x)^T db, or db
//   w = b / N^2;  psd: |x_i|^2 x_i / N^4 in group i;  psd_sum: sum_j (x_i . x_j) x_j / N^4
//
// Huge and tiny rows neither overflow nor vanish on the way: lengths are taken of rows scaled by a power of
// two. Rows may be strided (a head inside a fused projection is a view); the heads of a row are contiguous.
// Aliasing: u and dx overlap nothing.
#pragma once

#include "ops/feature_map.h"

namespace kata {

struct UnitFeatureSize {
  int64_t rows = 0, heads = 1;
  // Elements from row to row: of x, of u and du, of dx.
  int64_t x_stride = 0, u_stride = 0, dx_stride = 0;
};

namespace cpu {
template <class T>
void unit_feature_forward(T* u, const T* x, T scale, const FeatureMap& map, const UnitFeatureSize& size);
template <class T>
void unit_feature_backward(T* dx, const T* du, const T* x, T scale, const FeatureMap& map,
                           const UnitFeatureSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void unit_feature_forward(GpuStream stream, T* u, const T* x, float scale, const FeatureMap& map,
                          const UnitFeatureSize& size);
template <class T>
void unit_feature_backward(GpuStream stream, T* dx, const T* du, const T* x, float scale,
                           const FeatureMap& map, const UnitFeatureSize& size);
}  // namespace cuda

inline void check_unit_feature(const char* op, const char* name, const Tensor& t, const Tensor& x,
                               const FeatureMap& map) {
  check(op, map);
  KATA_CHECK(t.shape() == x.shape() && t.dtype() == x.dtype(), "{}: {} {} and x {}", op, name,
             t.shape().str(), x.shape().str());
  KATA_CHECK(t.rank() == 2 || (t.rank() == 3 && t.stride(1) == t.dim(2)),
             "{}: {} {} must be [rows, width] or [rows, heads, width] with contiguous heads", op, name,
             t.shape().str());
  KATA_CHECK(t.dim(t.rank() - 1) == map.width, "{}: {} {} for a map of width {}", op, name, t.shape().str(),
             map.width);
}

// u, x: [rows, width] or [rows, heads, width].
inline void unit_feature_forward(Context& ctx, const Tensor& u, const Tensor& x, double scale,
                                 const FeatureMap& map) {
  check_unit_feature("unit_feature", "x", x, x, map);
  check_unit_feature("unit_feature", "u", u, x, map);
  if (ctx.planning()) return;
  const UnitFeatureSize size = {x.dim(0), x.rank() == 3 ? x.dim(1) : 1, x.stride(0), u.stride(0), 0};
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::unit_feature_forward<T>(u.as<T>(), x.as<T>(), static_cast<T>(scale), map, size);
      },
      [&]<class T>() {
        cuda::unit_feature_forward<T>(ctx.stream(), u.as<T>(), x.as<T>(), static_cast<float>(scale), map,
                                      size);
      });
}

// dx: of the shape of x, overwritten.
inline void unit_feature_backward(Context& ctx, const Tensor& dx, const Tensor& du, const Tensor& x,
                                  double scale, const FeatureMap& map) {
  check_unit_feature("unit_feature_backward", "x", x, x, map);
  check_unit_feature("unit_feature_backward", "dx", dx, x, map);
  check_unit_feature("unit_feature_backward", "du", du, x, map);
  if (ctx.planning()) return;
  const UnitFeatureSize size = {x.dim(0), x.rank() == 3 ? x.dim(1) : 1, x.stride(0), du.stride(0),
                                dx.stride(0)};
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::unit_feature_backward<T>(dx.as<T>(), du.as<T>(), x.as<T>(), static_cast<T>(scale), map, size);
      },
      [&]<class T>() {
        cuda::unit_feature_backward<T>(ctx.stream(), dx.as<T>(), du.as<T>(), x.as<T>(),
                                       static_cast<float>(scale), map, size);
      });
}

}  // namespace kata
