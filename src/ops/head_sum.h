// The sum over heads: the adjoint of one B and one C shared by every head (Mamba-2, MATH 5).
//
//   y_r: = sum_h x_rh:
//
// x is contiguous; rows of y may be strided (a part of a fused projection is a view). y and x do not overlap.
// It is itself the backward pass of the sharing, so it needs none: nothing is differentiated through it.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct HeadSumSize {
  int64_t rows = 0, heads = 0, width = 0;
  int64_t y_stride = 0;  // elements from row to row in y
};

namespace cpu {
template <class T>
void head_sum(T* y, const T* x, const HeadSumSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void head_sum(GpuStream stream, T* y, const T* x, const HeadSumSize& size);
}  // namespace cuda

// y: [rows, width], overwritten; x: [rows, heads, width], at least one head.
inline void head_sum(Context& ctx, const Tensor& y, const Tensor& x) {
  KATA_CHECK(x.rank() == 3 && x.dim(1) >= 1, "head_sum: x {} must be [rows, heads, width]", x.shape().str());
  require_contiguous("head_sum", "x", x);
  require_shape("head_sum", "y", y, {x.dim(0), x.dim(2)}, x.dtype());
  if (ctx.planning()) return;
  const HeadSumSize size = {x.dim(0), x.dim(1), x.dim(2), y.stride(0)};
  dispatch(
      ctx, x.dtype(), [&]<class T>() { cpu::head_sum<T>(y.as<T>(), x.as<T>(), size); },
      [&]<class T>() { cuda::head_sum<T>(ctx.stream(), y.as<T>(), x.as<T>(), size); });
}

}  // namespace kata
