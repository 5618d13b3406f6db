// Short causal convolution along time, one filter per channel, then SiLU (MATH: layers).
//
//   z_t = sum_j w[c, j] x[t - (taps - 1) + j, c]     (x before the sequence is 0; the last tap meets x_t)
//   y_t = silu(z_t) = z_t sigmoid(z_t)
//
// backward, z recomputed, with dz = dy silu'(z):
//   dx_t = sum_j w[c, j] dz[t + (taps - 1) - j]      dw[c, j] += sum over sequences and t of dz_t x[t - (taps
//   - 1) + j]
//
// The state for continuing a sequence is the window of its last taps - 1 inputs, oldest first.
// All tensors are contiguous. Nothing may overlap.
#pragma once

#include "ops/dispatch.h"

namespace kata {

constexpr int64_t short_conv_max_taps = 16;

struct ShortConvSize {
  int64_t batch = 0, time = 0, channels = 0, taps = 0;
};

namespace cpu {
// filter: scratch of [taps, channels], for the transposed weight, in each of these.
template <class T>
void short_conv_forward(T* y, const T* x, const T* weight, T* filter, const ShortConvSize& size);
// partial: scratch of [short_conv_partials(size), taps, channels].
template <class T>
void short_conv_backward(T* dx, T* dweight, const T* dy, const T* x, const T* weight, T* filter, T* partial,
                         const ShortConvSize& size);
int64_t short_conv_partials(const ShortConvSize& size);
template <class T>
void short_conv_step(T* y, const T* x, T* window, const T* weight, const ShortConvSize& size);
template <class T>
void short_conv_window(T* window, const T* x, const ShortConvSize& size);
}  // namespace cpu

inline ShortConvSize short_conv_size(const char* op, const Tensor& y, const Tensor& x, const Tensor& weight) {
  KATA_CHECK(
      x.rank() == 3 && weight.rank() == 2 && weight.dim(1) >= 1 && weight.dim(1) <= short_conv_max_taps,
      "{}: x {} must be [batch, time, channels], weight {} [channels, 1 to {} taps]", op, x.shape().str(),
      weight.shape().str(), short_conv_max_taps);
  require(op, "y", y, x.shape(), x.dtype());
  require(op, "x", x, x.shape(), x.dtype());
  require(op, "weight", weight, {x.dim(2), weight.dim(1)}, x.dtype());
  return {x.dim(0), x.dim(1), x.dim(2), weight.dim(1)};
}

// y, x: [batch, time, channels]; weight: [channels, taps].
inline void short_conv_forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& weight) {
  const ShortConvSize size = short_conv_size("short_conv", y, x, weight);
  Arena::Scope scope(ctx.arena);
  const Tensor filter = ctx.arena.take("short_conv filter", x.dtype(), {size.taps, size.channels});
  if (ctx.planning()) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::short_conv_forward<T>(y.as<T>(), x.as<T>(), weight.as<T>(), filter.as<T>(), size);
  });
}

// dx: [batch, time, channels], overwritten; dweight: [channels, taps], added to.
inline void short_conv_backward(Context& ctx, const Tensor& dx, const Tensor& dweight, const Tensor& dy,
                                const Tensor& x, const Tensor& weight) {
  const ShortConvSize size = short_conv_size("short_conv_backward", dy, x, weight);
  require("short_conv_backward", "dx", dx, x.shape(), x.dtype());
  require("short_conv_backward", "dweight", dweight, weight.shape(), x.dtype());
  Arena::Scope scope(ctx.arena);
  const Tensor filter = ctx.arena.take("short_conv filter", x.dtype(), {size.taps, size.channels});
  const Tensor partial = ctx.arena.take("short_conv dweight partials", x.dtype(),
                                        {cpu::short_conv_partials(size), size.taps, size.channels});
  if (ctx.planning()) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::short_conv_backward<T>(dx.as<T>(), dweight.as<T>(), dy.as<T>(), x.as<T>(), weight.as<T>(),
                                filter.as<T>(), partial.as<T>(), size);
  });
}

// One token: y, x: [batch, channels]; window: [batch, taps - 1, channels], past inputs, oldest first, moved
// on by x. Equals the forward to rounding.
inline void short_conv_step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& window,
                            const Tensor& weight) {
  KATA_CHECK(x.rank() == 2, "short_conv_step: x {} must be [batch, channels]", x.shape().str());
  const Shape one{x.dim(0), 1, x.dim(1)};
  const ShortConvSize size = short_conv_size("short_conv_step", y.view(one), x.view(one), weight);
  require("short_conv_step", "window", window, {size.batch, size.taps - 1, size.channels}, x.dtype());
  if (ctx.planning()) return;
  dispatch_float(x.dtype(), [&]<class T>() {
    cpu::short_conv_step<T>(y.as<T>(), x.as<T>(), window.as<T>(), weight.as<T>(), size);
  });
}

// window: [batch, taps - 1, channels] = the last taps - 1 inputs of x [batch, time, channels], zeros in front
// where the sequence is shorter: the state after short_conv_forward of x.
inline void short_conv_window(Context& ctx, const Tensor& window, const Tensor& x) {
  KATA_CHECK(window.rank() == 3 && x.rank() == 3, "short_conv_window: window {}, x {}", window.shape().str(),
             x.shape().str());
  require("short_conv_window", "window", window, {x.dim(0), window.dim(1), x.dim(2)}, x.dtype());
  require_contiguous("short_conv_window", "x", x);
  if (ctx.planning()) return;
  const ShortConvSize size{x.dim(0), x.dim(1), x.dim(2), window.dim(1) + 1};
  dispatch_float(x.dtype(), [&]<class T>() { cpu::short_conv_window<T>(window.as<T>(), x.as<T>(), size); });
}

}  // namespace kata
