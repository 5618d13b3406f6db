// The decay of a head from its projection (MATH 3; the step of Mamba-2, MATH 5).
//
//   z_rh = x_rh + dt_bias_h        dt_rh = softplus(z_rh)        log_decay_rh = -exp(a_log_h) dt_rh <= 0
//
// backward, with g_rh = ddt_rh - exp(a_log_h) dlog_decay_rh:
//   dx_rh = g_rh sigmoid(z_rh)        ddt_bias_h += sum_r dx_rh
//   da_log_h += sum_r dlog_decay_rh log_decay_rh
//
// softplus is z far to the right and exp(z) far to the left: nothing overflows, and NaN stays NaN.
// Rows of x and dx may be strided (a part of a fused projection is a view); all else is contiguous, and Wide.
// Aliasing: log_decay or dt may be x, unless a backward pass follows (it reads x), and dx may be dlog_decay
// or ddt; laid out alike and of one type.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct DecayGateSize {
  int64_t rows = 0, heads = 0;
  int64_t x_stride = 0;   // elements from row to row in x
  int64_t dx_stride = 0;  // and in dx
};

namespace cpu {
// rate: scratch of [heads], for exp(a_log), in both. dt may be null: not wanted.
template <class T>
void decay_gate_forward(T* log_decay, T* dt, const T* x, const T* a_log, const T* dt_bias, T* rate,
                        const DecayGateSize& size);
// ddt may be null: zero. partial: scratch of [decay_gate_partials(size), 2, heads].
template <class T>
void decay_gate_backward(T* dx, T* da_log, T* ddt_bias, const T* dlog_decay, const T* ddt, const T* x,
                         const T* a_log, const T* dt_bias, T* rate, T* partial, const DecayGateSize& size);
int64_t decay_gate_partials(const DecayGateSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void decay_gate_forward(GpuStream stream, Wide<T>* log_decay, Wide<T>* dt, const T* x, const Wide<T>* a_log,
                        const Wide<T>* dt_bias, const DecayGateSize& size);
template <class T>
void decay_gate_backward(GpuStream stream, T* dx, Wide<T>* da_log, Wide<T>* ddt_bias,
                         const Wide<T>* dlog_decay, const Wide<T>* ddt, const T* x, const Wide<T>* a_log,
                         const Wide<T>* dt_bias, Wide<T>* partial, const DecayGateSize& size);
int64_t decay_gate_partials(const DecayGateSize& size);
}  // namespace cuda

// The CPU holds exp(a_log).
inline Tensor take_rate(Context& ctx, DType dtype, const DecayGateSize& size) {
  return ctx.device == Device::cuda ? Tensor() : ctx.arena.take("decay_gate rate", dtype, {size.heads});
}

// log_decay, dt, x: [rows, heads]; a_log, dt_bias: [heads]. An undefined dt is not wanted.
inline void decay_gate_forward(Context& ctx, const Tensor& log_decay, const Tensor& dt, const Tensor& x,
                               const Tensor& a_log, const Tensor& dt_bias) {
  KATA_CHECK(x.rank() == 2, "decay_gate: x {} must be [rows, heads]", x.shape().str());
  const DecayGateSize size = {x.dim(0), x.dim(1), x.stride(0), 0};
  require("decay_gate", "log_decay", log_decay, x.shape(), wide(x.dtype()));
  if (dt.defined()) require("decay_gate", "dt", dt, x.shape(), wide(x.dtype()));
  require("decay_gate", "a_log", a_log, {size.heads}, wide(x.dtype()));
  require("decay_gate", "dt_bias", dt_bias, {size.heads}, wide(x.dtype()));
  Arena::Scope scope(ctx.arena);
  const Tensor rate = take_rate(ctx, x.dtype(), size);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::decay_gate_forward<T>(log_decay.as<T>(), data_or_null<T>(dt), x.as<T>(), a_log.as<T>(),
                                   dt_bias.as<T>(), rate.as<T>(), size);
      },
      [&]<class T>() {
        cuda::decay_gate_forward<T>(ctx.stream(), log_decay.as<Wide<T>>(), data_or_null<Wide<T>>(dt),
                                    x.as<T>(), a_log.as<Wide<T>>(), dt_bias.as<Wide<T>>(), size);
      });
}

// dx: [rows, heads], overwritten; da_log and ddt_bias are added to. An undefined ddt is zero.
inline void decay_gate_backward(Context& ctx, const Tensor& dx, const Tensor& da_log, const Tensor& ddt_bias,
                                const Tensor& dlog_decay, const Tensor& ddt, const Tensor& x,
                                const Tensor& a_log, const Tensor& dt_bias) {
  const char* op = "decay_gate_backward";
  KATA_CHECK(x.rank() == 2, "{}: x {} must be [rows, heads]", op, x.shape().str());
  const DecayGateSize size = {x.dim(0), x.dim(1), x.stride(0), dx.stride(0)};
  require_shape(op, "dx", dx, x.shape(), x.dtype());
  require(op, "dlog_decay", dlog_decay, x.shape(), wide(x.dtype()));
  if (ddt.defined()) require(op, "ddt", ddt, x.shape(), wide(x.dtype()));
  require(op, "da_log", da_log, {size.heads}, wide(x.dtype()));
  require(op, "ddt_bias", ddt_bias, {size.heads}, wide(x.dtype()));
  require(op, "a_log", a_log, {size.heads}, wide(x.dtype()));
  require(op, "dt_bias", dt_bias, {size.heads}, wide(x.dtype()));
  Arena::Scope scope(ctx.arena);
  const Tensor rate = take_rate(ctx, x.dtype(), size);
  const int64_t partials = by_device(
      ctx, [&] { return cpu::decay_gate_partials(size); }, [&] { return cuda::decay_gate_partials(size); });
  const Tensor partial = ctx.arena.take("decay_gate partials", wide(x.dtype()), {partials, 2, size.heads});
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::decay_gate_backward<T>(dx.as<T>(), da_log.as<T>(), ddt_bias.as<T>(), dlog_decay.as<T>(),
                                    data_or_null<T>(ddt), x.as<T>(), a_log.as<T>(), dt_bias.as<T>(),
                                    rate.as<T>(), partial.as<T>(), size);
      },
      [&]<class T>() {
        cuda::decay_gate_backward<T>(ctx.stream(), dx.as<T>(), da_log.as<Wide<T>>(), ddt_bias.as<Wide<T>>(),
                                     dlog_decay.as<Wide<T>>(), data_or_null<Wide<T>>(ddt), x.as<T>(),
                                     a_log.as<Wide<T>>(), dt_bias.as<Wide<T>>(), partial.as<Wide<T>>(), size);
      });
}

}  // namespace kata
