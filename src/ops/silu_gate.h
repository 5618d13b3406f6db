// An output gate: x, opened by a projection g (Gated DeltaNet and Mamba-2, MATH 5).
//
//   y = x silu(g)        dx = dy silu(g)        dg = dy x silu'(g)
//
// Rows of every tensor may be strided (a part of a fused projection is a view).
// Aliasing: y may be x, unless a backward pass follows (it reads x), and dx may be dy; laid out alike.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct SiluGateSize {
  int64_t rows = 0, width = 0;
  // Elements from row to row: of y and dy, of x, of g, of dx and of dg.
  int64_t y_stride = 0, x_stride = 0, g_stride = 0, dx_stride = 0, dg_stride = 0;
};

namespace cpu {
template <class T>
void silu_gate_forward(T* y, const T* x, const T* g, const SiluGateSize& size);
template <class T>
void silu_gate_backward(T* dx, T* dg, const T* dy, const T* x, const T* g, const SiluGateSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void silu_gate_forward(GpuStream stream, T* y, const T* x, const T* g, const SiluGateSize& size);
template <class T>
void silu_gate_backward(GpuStream stream, T* dx, T* dg, const T* dy, const T* x, const T* g,
                        const SiluGateSize& size);
}  // namespace cuda

// y, x, g: [rows, width].
inline void silu_gate_forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& g) {
  KATA_CHECK(x.rank() == 2, "silu_gate: x {} must be [rows, width]", x.shape().str());
  require_shape("silu_gate", "y", y, x.shape(), x.dtype());
  require_shape("silu_gate", "g", g, x.shape(), x.dtype());
  if (ctx.planning()) return;
  const SiluGateSize size = {x.dim(0), x.dim(1), y.stride(0), x.stride(0), g.stride(0)};
  dispatch(
      ctx, x.dtype(), [&]<class T>() { cpu::silu_gate_forward<T>(y.as<T>(), x.as<T>(), g.as<T>(), size); },
      [&]<class T>() { cuda::silu_gate_forward<T>(ctx.stream(), y.as<T>(), x.as<T>(), g.as<T>(), size); });
}

// dx and dg are overwritten.
inline void silu_gate_backward(Context& ctx, const Tensor& dx, const Tensor& dg, const Tensor& dy,
                               const Tensor& x, const Tensor& g) {
  KATA_CHECK(x.rank() == 2, "silu_gate_backward: x {} must be [rows, width]", x.shape().str());
  require_shape("silu_gate_backward", "dx", dx, x.shape(), x.dtype());
  require_shape("silu_gate_backward", "dg", dg, x.shape(), x.dtype());
  require_shape("silu_gate_backward", "dy", dy, x.shape(), x.dtype());
  require_shape("silu_gate_backward", "g", g, x.shape(), x.dtype());
  if (ctx.planning()) return;
  const SiluGateSize size = {x.dim(0),    x.dim(1),     dy.stride(0), x.stride(0),
                             g.stride(0), dx.stride(0), dg.stride(0)};
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::silu_gate_backward<T>(dx.as<T>(), dg.as<T>(), dy.as<T>(), x.as<T>(), g.as<T>(), size);
      },
      [&]<class T>() {
        cuda::silu_gate_backward<T>(ctx.stream(), dx.as<T>(), dg.as<T>(), dy.as<T>(), x.as<T>(), g.as<T>(),
                                    size);
      });
}

}  // namespace kata
