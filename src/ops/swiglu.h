// SwiGLU on a fused projection x = (gate, up), each of width F.
//
//   y = silu(gate) up        dgate = dy up silu'(gate)        dup = dy silu(gate)
//
// All tensors are contiguous. Aliasing: dx may be x.
#pragma once

#include "ops/dispatch.h"

namespace kata {

namespace cpu {
template <class T>
void swiglu_forward(T* y, const T* x, int64_t rows, int64_t width);
template <class T>
void swiglu_backward(T* dx, const T* dy, const T* x, int64_t rows, int64_t width);
}  // namespace cpu

namespace cuda {
template <class T>
void swiglu_forward(GpuStream stream, T* y, const T* x, int64_t rows, int64_t width);
template <class T>
void swiglu_backward(GpuStream stream, T* dx, const T* dy, const T* x, int64_t rows, int64_t width);
}  // namespace cuda

inline void check_swiglu(const char* op, const Tensor& y, const Tensor& x) {
  KATA_CHECK(y.rank() == 2, "{}: y {} must be [rows, width]", op, y.shape().str());
  require(op, "y", y, y.shape(), x.dtype());
  require(op, "x", x, {y.dim(0), 2 * y.dim(1)}, x.dtype());
}

// y: [rows, F]; x: [rows, 2F], gate first.
inline void swiglu_forward(Context& ctx, const Tensor& y, const Tensor& x) {
  check_swiglu("swiglu", y, x);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(), [&]<class T>() { cpu::swiglu_forward<T>(y.as<T>(), x.as<T>(), y.dim(0), y.dim(1)); },
      [&]<class T>() { cuda::swiglu_forward<T>(ctx.stream(), y.as<T>(), x.as<T>(), y.dim(0), y.dim(1)); });
}

// dx: [rows, 2F], overwritten; dy: [rows, F].
inline void swiglu_backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x) {
  check_swiglu("swiglu_backward", dy, x);
  require("swiglu_backward", "dx", dx, x.shape(), x.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() { cpu::swiglu_backward<T>(dx.as<T>(), dy.as<T>(), x.as<T>(), dy.dim(0), dy.dim(1)); },
      [&]<class T>() {
        cuda::swiglu_backward<T>(ctx.stream(), dx.as<T>(), dy.as<T>(), x.as<T>(), dy.dim(0), dy.dim(1));
      });
}

}  // namespace kata
