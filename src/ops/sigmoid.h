// The logistic function of every element (beta of the delta rule, MATH 4).
//
//   y = 1 / (1 + exp(-x))        dx = dy y (1 - y)
//
// No input overflows: far to the left y is 0 or denormal, far to the right it is 1. NaN stays NaN.
// y and dy are contiguous; rows of x and dx may be strided (a part of a fused projection is a view).
// y and dy are Wide. Aliasing: y may be x and dx may be dy, where those are contiguous and of one type.
#pragma once

#include "ops/dispatch.h"

namespace kata {

namespace cpu {
template <class T>
void sigmoid_forward(T* y, const T* x, int64_t rows, int64_t width, int64_t x_stride);
template <class T>
void sigmoid_backward(T* dx, const T* dy, const T* y, int64_t rows, int64_t width, int64_t dx_stride);
}  // namespace cpu

namespace cuda {
template <class T>
void sigmoid_forward(GpuStream stream, Wide<T>* y, const T* x, int64_t rows, int64_t width, int64_t x_stride);
template <class T>
void sigmoid_backward(GpuStream stream, T* dx, const Wide<T>* dy, const Wide<T>* y, int64_t rows,
                      int64_t width, int64_t dx_stride);
}  // namespace cuda

// y, x: [rows, width].
inline void sigmoid_forward(Context& ctx, const Tensor& y, const Tensor& x) {
  KATA_CHECK(x.rank() == 2, "sigmoid: x {} must be [rows, width]", x.shape().str());
  require("sigmoid", "y", y, x.shape(), wide(x.dtype()));
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() { cpu::sigmoid_forward<T>(y.as<T>(), x.as<T>(), x.dim(0), x.dim(1), x.stride(0)); },
      [&]<class T>() {
        cuda::sigmoid_forward<T>(ctx.stream(), y.as<Wide<T>>(), x.as<T>(), x.dim(0), x.dim(1), x.stride(0));
      });
}

// dx: [rows, width], overwritten; dy, y as y of the forward pass.
inline void sigmoid_backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& y) {
  KATA_CHECK(dx.rank() == 2, "sigmoid_backward: dx {} must be [rows, width]", dx.shape().str());
  require("sigmoid_backward", "dy", dy, dx.shape(), wide(dx.dtype()));
  require("sigmoid_backward", "y", y, dx.shape(), wide(dx.dtype()));
  if (ctx.planning()) return;
  dispatch(
      ctx, dx.dtype(),
      [&]<class T>() {
        cpu::sigmoid_backward<T>(dx.as<T>(), dy.as<T>(), y.as<T>(), dx.dim(0), dx.dim(1), dx.stride(0));
      },
      [&]<class T>() {
        cuda::sigmoid_backward<T>(ctx.stream(), dx.as<T>(), dy.as<Wide<T>>(), y.as<Wide<T>>(), dx.dim(0),
                                  dx.dim(1), dx.stride(0));
      });
}

}  // namespace kata
