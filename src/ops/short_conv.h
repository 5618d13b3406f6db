// Short causal convolution along time, one filter per channel, then SiLU (MATH: layers).
//
//   z_t = bias[c] + sum_j w[c, j] x[t - (taps - 1) + j, c]     (the last tap meets x_t; bias is optional)
//   y_t = silu(z_t) = z_t sigmoid(z_t)
//
// x before the document of t is 0 (ops/documents.h). Before the first token of the call it is the window that
// was carried in, as far as the document of t reaches back; without `starts` it reaches over the whole
// window, and without a window it is 0.
//
// backward, without a window, z recomputed, with dz = dy silu'(z):
//   dx_t = sum_j w[c, j] dz[t + (taps - 1) - j], over the times of the document of t
//   dw[c, j] += sum over sequences and t of dz_t x[t - (taps - 1) + j]      dbias[c] += sum of dz_t
//
// The state for continuing a sequence is the window of its last taps - 1 inputs, oldest first, 0 where they
// lie before the document of the last token.
// All tensors are contiguous. Nothing may overlap, except that a window may be moved on in place.
#pragma once

#include "ops/documents.h"

namespace kata {

constexpr int64_t short_conv_max_taps = 16;

struct ShortConvSize {
  int64_t batch = 0, time = 0, channels = 0, taps = 0;
};

// F: of the filter, Wide<T>.
template <class T, class F = T>
struct ShortConvInput {
  const T* x;                 // [batch, time, channels]
  const F* weight;            // [channels, taps]
  const F* bias = nullptr;    // [channels], or null
  const T* window = nullptr;  // [batch, taps - 1, channels], or null; null in the backward
  Starts starts;
};

namespace cpu {
// filter: scratch of [taps, channels], for the transposed weight, in each of these.
template <class T>
void short_conv_forward(T* y, const ShortConvInput<T>& in, T* filter, const ShortConvSize& size);
// dbias: null where there is no bias. partial: scratch of [short_conv_partials(size), taps, channels], with a
// bias [.., taps + 1, ..].
template <class T>
void short_conv_backward(T* dx, T* dweight, T* dbias, const T* dy, const ShortConvInput<T>& in, T* filter,
                         T* partial, const ShortConvSize& size);
int64_t short_conv_partials(const ShortConvSize& size);
template <class T>
void short_conv_step(T* y, const T* x, T* window, const T* weight, const T* bias, const ShortConvSize& size);
// before: the window before x, or null; may be `window`.
template <class T>
void short_conv_window(T* window, const T* x, const T* before, const Starts& starts,
                       const ShortConvSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void short_conv_forward(GpuStream stream, T* y, const ShortConvInput<T, Wide<T>>& in,
                        const ShortConvSize& size);
// partial: scratch of [short_conv_partials(size), taps, channels], with a bias [.., taps + 1, ..].
template <class T>
void short_conv_backward(GpuStream stream, T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy,
                         const ShortConvInput<T, Wide<T>>& in, Wide<T>* partial, const ShortConvSize& size);
int64_t short_conv_partials(const ShortConvSize& size);
template <class T>
void short_conv_step(GpuStream stream, T* y, const T* x, T* window, const Wide<T>* weight,
                     const Wide<T>* bias, const ShortConvSize& size);
template <class T>
void short_conv_window(GpuStream stream, T* window, const T* x, const T* before, const Starts& starts,
                       const ShortConvSize& size);
}  // namespace cuda

inline ShortConvSize short_conv_size(const char* op, const Tensor& y, const Tensor& x, const Tensor& weight,
                                     const Tensor& bias) {
  KATA_CHECK(
      x.rank() == 3 && weight.rank() == 2 && weight.dim(1) >= 1 && weight.dim(1) <= short_conv_max_taps,
      "{}: x {} must be [batch, time, channels], weight {} [channels, 1 to {} taps]", op, x.shape().str(),
      weight.shape().str(), short_conv_max_taps);
  require(op, "y", y, x.shape(), x.dtype());
  require(op, "x", x, x.shape(), x.dtype());
  require(op, "weight", weight, {x.dim(2), weight.dim(1)}, wide(x.dtype()));
  if (bias.defined()) require(op, "bias", bias, {x.dim(2)}, wide(x.dtype()));
  return {x.dim(0), x.dim(1), x.dim(2), weight.dim(1)};
}

inline void require_window(const char* op, const char* name, const Tensor& window, const ShortConvSize& size,
                           DType dtype) {
  require(op, name, window, {size.batch, size.taps - 1, size.channels}, dtype);
}

// The CPU reads the filter transposed.
inline Tensor take_filter(Context& ctx, DType dtype, const ShortConvSize& size) {
  if (ctx.device == Device::cuda) return {};
  return ctx.arena.take("short_conv filter", dtype, {size.taps, size.channels});
}

// y, x: [batch, time, channels]; weight: [channels, taps]. Optional: bias [channels], starts [batch, time],
// window_in [batch, taps - 1, channels].
inline void short_conv_forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& weight,
                               const Tensor& bias = {}, const Tensor& starts = {},
                               const Tensor& window_in = {}) {
  const char* op = "short_conv";
  const ShortConvSize size = short_conv_size(op, y, x, weight, bias);
  require_starts(op, starts, size.batch, size.time);
  if (window_in.defined()) require_window(op, "window_in", window_in, size, x.dtype());
  Arena::Scope scope(ctx.arena);
  const Tensor filter = take_filter(ctx, x.dtype(), size);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::short_conv_forward<T>(
            y.as<T>(),
            {x.as<T>(), weight.as<T>(), data_or_null<T>(bias), data_or_null<T>(window_in), starts_of(starts)},
            filter.as<T>(), size);
      },
      [&]<class T>() {
        cuda::short_conv_forward<T>(ctx.stream(), y.as<T>(),
                                    {x.as<T>(), weight.as<Wide<T>>(), data_or_null<Wide<T>>(bias),
                                     data_or_null<T>(window_in), starts_of(starts)},
                                    size);
      });
}

// dx: [batch, time, channels], overwritten; dweight: [channels, taps] and, with a bias, dbias: [channels],
// added to.
inline void short_conv_backward(Context& ctx, const Tensor& dx, const Tensor& dweight, const Tensor& dy,
                                const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                const Tensor& dbias = {}, const Tensor& starts = {}) {
  const char* op = "short_conv_backward";
  const ShortConvSize size = short_conv_size(op, dy, x, weight, bias);
  require(op, "dx", dx, x.shape(), x.dtype());
  require(op, "dweight", dweight, weight.shape(), wide(x.dtype()));
  KATA_CHECK(bias.defined() == dbias.defined(), "{}: bias {} and dbias {} go together", op,
             bias.shape().str(), dbias.shape().str());
  if (dbias.defined()) require(op, "dbias", dbias, bias.shape(), wide(x.dtype()));
  require_starts(op, starts, size.batch, size.time);
  Arena::Scope scope(ctx.arena);
  const Tensor filter = take_filter(ctx, x.dtype(), size);
  const int64_t partials = by_device(
      ctx, [&] { return cpu::short_conv_partials(size); }, [&] { return cuda::short_conv_partials(size); });
  const Tensor partial = ctx.arena.take("short_conv dweight partials", wide(x.dtype()),
                                        {partials, size.taps + (bias.defined() ? 1 : 0), size.channels});
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::short_conv_backward<T>(
            dx.as<T>(), dweight.as<T>(), data_or_null<T>(dbias), dy.as<T>(),
            {x.as<T>(), weight.as<T>(), data_or_null<T>(bias), nullptr, starts_of(starts)}, filter.as<T>(),
            partial.as<T>(), size);
      },
      [&]<class T>() {
        cuda::short_conv_backward<T>(
            ctx.stream(), dx.as<T>(), dweight.as<Wide<T>>(), data_or_null<Wide<T>>(dbias), dy.as<T>(),
            {x.as<T>(), weight.as<Wide<T>>(), data_or_null<Wide<T>>(bias), nullptr, starts_of(starts)},
            partial.as<Wide<T>>(), size);
      });
}

// One token: y, x: [batch, channels]; window: [batch, taps - 1, channels], past inputs, oldest first, moved
// on by x. Equals the forward to rounding.
inline void short_conv_step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& window,
                            const Tensor& weight, const Tensor& bias = {}) {
  KATA_CHECK(x.rank() == 2, "short_conv_step: x {} must be [batch, channels]", x.shape().str());
  const Shape one{x.dim(0), 1, x.dim(1)};
  const ShortConvSize size = short_conv_size("short_conv_step", y.view(one), x.view(one), weight, bias);
  require_window("short_conv_step", "window", window, size, x.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::short_conv_step<T>(y.as<T>(), x.as<T>(), window.as<T>(), weight.as<T>(), data_or_null<T>(bias),
                                size);
      },
      [&]<class T>() {
        cuda::short_conv_step<T>(ctx.stream(), y.as<T>(), x.as<T>(), window.as<T>(), weight.as<Wide<T>>(),
                                 data_or_null<Wide<T>>(bias), size);
      });
}

// window: [batch, taps - 1, channels] = the last taps - 1 inputs, those of window_in (the window before x,
// zeros if undefined) followed by x [batch, time, channels]: the state after short_conv_forward of x. Inputs
// before the document of the last token are 0. window_in may be `window` itself.
inline void short_conv_window(Context& ctx, const Tensor& window, const Tensor& x, const Tensor& starts = {},
                              const Tensor& window_in = {}) {
  const char* op = "short_conv_window";
  KATA_CHECK(window.rank() == 3 && x.rank() == 3, "{}: window {}, x {}", op, window.shape().str(),
             x.shape().str());
  const ShortConvSize size{x.dim(0), x.dim(1), x.dim(2), window.dim(1) + 1};
  require_window(op, "window", window, size, x.dtype());
  require_contiguous(op, "x", x);
  require_starts(op, starts, size.batch, size.time);
  if (window_in.defined()) require_window(op, "window_in", window_in, size, x.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::short_conv_window<T>(window.as<T>(), x.as<T>(), data_or_null<T>(window_in), starts_of(starts),
                                  size);
      },
      [&]<class T>() {
        cuda::short_conv_window<T>(ctx.stream(), window.as<T>(), x.as<T>(), data_or_null<T>(window_in),
                                   starts_of(starts), size);
      });
}

}  // namespace kata
