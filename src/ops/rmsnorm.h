// RMSNorm over the last dimension (MATH: layers; eps 1e-6 everywhere).
//
//   rstd_r = 1 / sqrt(mean_j x_rj^2 + eps)        y_rj = x_rj rstd_r w_j
//
// backward, with g = dy * w and m_r = mean_j g_rj x_rj:
//   dx_rj (+)= rstd_r (g_rj - x_rj rstd_r^2 m_r)  dw_j += sum_r dy_rj x_rj rstd_r
//
// Rows may be strided (a head inside a fused projection is a view); the last dimension is contiguous.
// Aliasing: y may be x, unless a backward pass follows (it reads x).
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct RmsNormSize {
  int64_t rows = 0;      // groups of `inner` rows whose starts lie a stride apart
  int64_t inner = 1;     // contiguous rows inside a group (the heads of a token)
  int64_t width = 0;     // normalised elements
  int64_t x_stride = 0;  // elements from group to group in x (and dx)
  int64_t y_stride = 0;  // elements from group to group in y (and dy)
};

namespace cpu {
template <class T>
void rmsnorm_forward(T* y, T* rstd, const T* x, const T* weight, T eps, const RmsNormSize& size);
// partial: scratch of [rmsnorm_partials(size), width]. accumulate: dx += instead of dx =.
template <class T>
void rmsnorm_backward(T* dx, T* dweight, const T* dy, const T* x, const T* rstd, const T* weight, T* partial,
                      bool accumulate, const RmsNormSize& size);
int64_t rmsnorm_partials(const RmsNormSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void rmsnorm_forward(GpuStream stream, T* y, Wide<T>* rstd, const T* x, const Wide<T>* weight, float eps,
                     const RmsNormSize& size);
template <class T>
void rmsnorm_backward(GpuStream stream, T* dx, Wide<T>* dweight, const T* dy, const T* x, const Wide<T>* rstd,
                      const Wide<T>* weight, Wide<T>* partial, bool accumulate, const RmsNormSize& size);
int64_t rmsnorm_partials(const RmsNormSize& size);
}  // namespace cuda

inline RmsNormSize rmsnorm_size(const char* op, const Tensor& x, const Tensor& y) {
  KATA_CHECK(x.shape() == y.shape() && x.dtype() == y.dtype(), "{}: x {} and y {}", op, x.shape().str(),
             y.shape().str());
  KATA_CHECK(x.rank() == 2 || (x.rank() == 3 && x.stride(1) == x.dim(2) && y.stride(1) == y.dim(2)),
             "{}: x {} must be [rows, width] or [rows, heads, width] with contiguous heads", op,
             x.shape().str());
  return {x.dim(0), x.rank() == 3 ? x.dim(1) : 1, x.dim(x.rank() - 1), x.stride(0), y.stride(0)};
}

// y, x: [rows, width] or [rows, heads, width]; rstd: [rows] or [rows * heads]; weight: [width].
inline void rmsnorm_forward(Context& ctx, const Tensor& y, const Tensor& rstd, const Tensor& x,
                            const Tensor& weight, double eps) {
  const RmsNormSize size = rmsnorm_size("rmsnorm", x, y);
  require("rmsnorm", "rstd", rstd, {size.rows * size.inner}, wide(x.dtype()));
  require("rmsnorm", "weight", weight, {size.width}, wide(x.dtype()));
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::rmsnorm_forward<T>(y.as<T>(), rstd.as<T>(), x.as<T>(), weight.as<T>(), static_cast<T>(eps),
                                size);
      },
      [&]<class T>() {
        cuda::rmsnorm_forward<T>(ctx.stream(), y.as<T>(), rstd.as<Wide<T>>(), x.as<T>(), weight.as<Wide<T>>(),
                                 static_cast<float>(eps), size);
      });
}

// dx, x share a shape and stride, as dy and y do; dweight is added to.
inline void rmsnorm_backward(Context& ctx, const Tensor& dx, const Tensor& dweight, const Tensor& dy,
                             const Tensor& x, const Tensor& rstd, const Tensor& weight, bool accumulate) {
  const RmsNormSize size = rmsnorm_size("rmsnorm_backward", x, dy);
  KATA_CHECK(dx.shape() == x.shape() && dx.stride(0) == x.stride(0),
             "rmsnorm_backward: dx must be laid out as x");
  require("rmsnorm_backward", "rstd", rstd, {size.rows * size.inner}, wide(x.dtype()));
  require("rmsnorm_backward", "dweight", dweight, {size.width}, wide(x.dtype()));
  Arena::Scope scope(ctx.arena);
  const int64_t partials = by_device(
      ctx, [&] { return cpu::rmsnorm_partials(size); }, [&] { return cuda::rmsnorm_partials(size); });
  const Tensor partial = ctx.arena.take("rmsnorm dweight partials", wide(x.dtype()), {partials, size.width});
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::rmsnorm_backward<T>(dx.as<T>(), dweight.as<T>(), dy.as<T>(), x.as<T>(), rstd.as<T>(),
                                 weight.as<T>(), partial.as<T>(), accumulate, size);
      },
      [&]<class T>() {
        cuda::rmsnorm_backward<T>(ctx.stream(), dx.as<T>(), dweight.as<Wide<T>>(), dy.as<T>(), x.as<T>(),
                                  rstd.as<Wide<T>>(), weight.as<Wide<T>>(), partial.as<Wide<T>>(), accumulate,
                                  size);
      });
}

}  // namespace kata
