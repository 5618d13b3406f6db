// Rows scaled to unit length (the l2 norm of q and k; DeltaNet's unit features).
//
//   rnorm_r = 1 / sqrt(sum_j x_rj^2 + eps)        y_rj = x_rj rnorm_r
//   dx_rj (+)= rnorm_r dy_rj - x_rj rnorm_r^3 sum_i dy_ri x_ri
//
// Rows may be strided (a head inside a fused projection is a view); the last dimension is contiguous.
// Aliasing: y may be x, unless a backward pass follows (it reads x).
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct L2NormSize {
  int64_t rows = 0;      // groups of `inner` rows whose starts lie a stride apart
  int64_t inner = 1;     // contiguous rows inside a group (the heads of a token)
  int64_t width = 0;     // elements of a row
  int64_t x_stride = 0;  // elements from group to group in x (and dx)
  int64_t y_stride = 0;  // elements from group to group in y (and dy)
};

namespace cpu {
template <class T>
void l2norm_forward(T* y, T* rnorm, const T* x, T eps, const L2NormSize& size);
// accumulate: dx += instead of dx =.
template <class T>
void l2norm_backward(T* dx, const T* dy, const T* x, const T* rnorm, bool accumulate, const L2NormSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void l2norm_forward(GpuStream stream, T* y, Wide<T>* rnorm, const T* x, float eps, const L2NormSize& size);
template <class T>
void l2norm_backward(GpuStream stream, T* dx, const T* dy, const T* x, const Wide<T>* rnorm, bool accumulate,
                     const L2NormSize& size);
}  // namespace cuda

inline L2NormSize l2norm_size(const char* op, const Tensor& x, const Tensor& y) {
  KATA_CHECK(x.shape() == y.shape() && x.dtype() == y.dtype(), "{}: x {} and y {}", op, x.shape().str(),
             y.shape().str());
  KATA_CHECK(x.rank() == 2 || (x.rank() == 3 && x.stride(1) == x.dim(2) && y.stride(1) == y.dim(2)),
             "{}: x {} must be [rows, width] or [rows, heads, width] with contiguous heads", op,
             x.shape().str());
  return {x.dim(0), x.rank() == 3 ? x.dim(1) : 1, x.dim(x.rank() - 1), x.stride(0), y.stride(0)};
}

// y, x: [rows, width] or [rows, heads, width]; rnorm: Wide [rows] or [rows * heads].
inline void l2norm_forward(Context& ctx, const Tensor& y, const Tensor& rnorm, const Tensor& x, double eps) {
  const L2NormSize size = l2norm_size("l2norm", x, y);
  require("l2norm", "rnorm", rnorm, {size.rows * size.inner}, wide(x.dtype()));
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::l2norm_forward<T>(y.as<T>(), rnorm.as<T>(), x.as<T>(), static_cast<T>(eps), size);
      },
      [&]<class T>() {
        cuda::l2norm_forward<T>(ctx.stream(), y.as<T>(), rnorm.as<Wide<T>>(), x.as<T>(),
                                static_cast<float>(eps), size);
      });
}

// dx, x share a shape and stride.
inline void l2norm_backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                            const Tensor& rnorm, bool accumulate) {
  const L2NormSize size = l2norm_size("l2norm_backward", x, dy);
  KATA_CHECK(dx.shape() == x.shape() && dx.stride(0) == x.stride(0) && dx.dtype() == x.dtype(),
             "l2norm_backward: dx must be laid out as x");
  require("l2norm_backward", "rnorm", rnorm, {size.rows * size.inner}, wide(x.dtype()));
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::l2norm_backward<T>(dx.as<T>(), dy.as<T>(), x.as<T>(), rnorm.as<T>(), accumulate, size);
      },
      [&]<class T>() {
        cuda::l2norm_backward<T>(ctx.stream(), dx.as<T>(), dy.as<T>(), x.as<T>(), rnorm.as<Wide<T>>(),
                                 accumulate, size);
      });
}

}  // namespace kata
