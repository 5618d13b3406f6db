// RMSNorm and rotary positions of queries and keys in one pass (MATH: layers): ops/rmsnorm.h, then
// ops/rope.h.
//
//   n = x rstd w, rstd = 1 / sqrt(mean_j x_j^2 + eps)     of every head, w that of queries or of keys
//   y = R(position) n                                     pairs (2i, 2i+1) turned as RopeSpec says
//
// backward, with g = R(position)^T dy, the rotation by the negative angle, and m = mean_j g_j w_j x_j:
//   dw_j += sum of g_j x_j rstd over tokens and heads     dx_j = rstd (g_j w_j - x_j rstd^2 m)
//
// The heads of a token lie side by side, first those of queries, then those of keys, as the fused projection
// leaves them; tokens may be strided. Nothing is kept for backward but rstd: it reads x again.
// Aliasing: y may be x, unless a backward pass follows; dx may be dy where their strides agree.
#pragma once

#include "ops/rope.h"

namespace kata {

struct QkNormRopeSize {
  int64_t batch = 0, time = 0;
  int64_t q_heads = 0, k_heads = 0;
  int64_t x_batch = 0, x_token = 0;  // strides of x (and dx) in elements
  int64_t y_batch = 0, y_token = 0;  // strides of y (and dy)
  int64_t positions = 0;             // rows of the table

  constexpr int64_t tokens() const { return batch * time; }
  constexpr int64_t heads() const { return q_heads + k_heads; }
};

// What both passes read beside the heads, as launchers see it; W is Wide.
template <class W>
struct QkNormRopeInput {
  const W *q_weight, *k_weight;  // [width]
  const W* table;                // [positions, pairs, 2] = (cos, sin)
  Starts starts;
  RopeSpec spec;
};

namespace cpu {
template <class T>
void qk_norm_rope_forward(T* y, T* rstd, const T* x, T eps, const QkNormRopeInput<T>& in,
                          const QkNormRopeSize& size);
// partial: scratch of [qk_norm_rope_partials(size), width].
template <class T>
void qk_norm_rope_backward(T* dx, T* dq_weight, T* dk_weight, const T* dy, const T* x, const T* rstd,
                           T* partial, const QkNormRopeInput<T>& in, const QkNormRopeSize& size);
int64_t qk_norm_rope_partials(const QkNormRopeSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void qk_norm_rope_forward(GpuStream stream, T* y, Wide<T>* rstd, const T* x, float eps,
                          const QkNormRopeInput<Wide<T>>& in, const QkNormRopeSize& size);
template <class T>
void qk_norm_rope_backward(GpuStream stream, T* dx, Wide<T>* dq_weight, Wide<T>* dk_weight, const T* dy,
                           const T* x, const Wide<T>* rstd, Wide<T>* partial,
                           const QkNormRopeInput<Wide<T>>& in, const QkNormRopeSize& size);
int64_t qk_norm_rope_partials(const QkNormRopeSize& size);
}  // namespace cuda

// The widths that the op takes: pairs lie inside a group, and a warp holds a head in registers.
constexpr int64_t qk_norm_rope_widest = 256;
constexpr bool qk_norm_rope_takes(const RopeSpec& spec) {
  return spec.width <= qk_norm_rope_widest && spec.group_width() % 2 == 0;
}

// The norms and positions of queries and keys.
struct QkNormRope {
  int64_t q_heads = 0;        // the first heads of a token; the others are keys
  Tensor q_weight, k_weight;  // Wide [width]
  Tensor table;               // Wide [time, pairs, 2]; with starts as rope_forward says
  RopeSpec spec;
  Tensor starts = {};  // int32 [batch, time]
};

// x, y: [batch, time, heads, width] with contiguous heads; rstd: Wide [batch * time * heads].
inline QkNormRopeSize qk_norm_rope_size(const char* op, const Tensor& x, const Tensor& y, const Tensor& rstd,
                                        const QkNormRope& by) {
  check_rope(op, by.table, by.spec);
  KATA_CHECK(x.rank() == 4 && x.shape() == y.shape() && x.dtype() == y.dtype() && x.dim(3) == by.spec.width,
             "{}: x {} and y {}, width {}", op, x.shape().str(), y.shape().str(), by.spec.width);
  KATA_CHECK(x.stride(2) == x.dim(3) && y.stride(2) == y.dim(3), "{}: heads must be contiguous", op);
  KATA_CHECK(qk_norm_rope_takes(by.spec), "{}: width {} in {} groups", op, by.spec.width, by.spec.groups);
  KATA_CHECK(by.q_heads >= 0 && by.q_heads <= x.dim(2), "{}: {} of {} heads", op, by.q_heads, x.dim(2));
  KATA_CHECK((by.starts.defined() || x.dim(1) == by.table.dim(0)) && by.table.dtype() == wide(x.dtype()),
             "{}: x {} {} and table {} {}", op, name_of(x.dtype()), x.shape().str(),
             name_of(by.table.dtype()), by.table.shape().str());
  require_starts(op, by.starts, x.dim(0), x.dim(1));
  require(op, "q_weight", by.q_weight, {by.spec.width}, wide(x.dtype()));
  require(op, "k_weight", by.k_weight, {by.spec.width}, wide(x.dtype()));
  require(op, "rstd", rstd, {x.dim(0) * x.dim(1) * x.dim(2)}, wide(x.dtype()));
  return {x.dim(0),    x.dim(1),    by.q_heads,  x.dim(2) - by.q_heads, x.stride(0),
          x.stride(1), y.stride(0), y.stride(1), by.table.dim(0)};
}

template <class W>
QkNormRopeInput<W> qk_norm_rope_input(const QkNormRope& by) {
  return {by.q_weight.as<W>(), by.k_weight.as<W>(), by.table.as<W>(), starts_of(by.starts), by.spec};
}

inline void qk_norm_rope_forward(Context& ctx, const Tensor& y, const Tensor& rstd, const Tensor& x,
                                 const QkNormRope& by, double eps) {
  const QkNormRopeSize size = qk_norm_rope_size("qk_norm_rope", x, y, rstd, by);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::qk_norm_rope_forward<T>(y.as<T>(), rstd.as<T>(), x.as<T>(), static_cast<T>(eps),
                                     qk_norm_rope_input<T>(by), size);
      },
      [&]<class T>() {
        cuda::qk_norm_rope_forward<T>(ctx.stream(), y.as<T>(), rstd.as<Wide<T>>(), x.as<T>(),
                                      static_cast<float>(eps), qk_norm_rope_input<Wide<T>>(by), size);
      });
}

// dx is laid out as x and overwritten; dy may have strides of its own; dq_weight and dk_weight are added to.
inline void qk_norm_rope_backward(Context& ctx, const Tensor& dx, const Tensor& dq_weight,
                                  const Tensor& dk_weight, const Tensor& dy, const Tensor& x,
                                  const Tensor& rstd, const QkNormRope& by) {
  const QkNormRopeSize size = qk_norm_rope_size("qk_norm_rope_backward", x, dy, rstd, by);
  KATA_CHECK(dx.shape() == x.shape() && dx.stride(0) == x.stride(0) && dx.stride(1) == x.stride(1) &&
                 dx.stride(2) == x.stride(2),
             "qk_norm_rope_backward: dx must be laid out as x");
  require("qk_norm_rope_backward", "dq_weight", dq_weight, {by.spec.width}, wide(x.dtype()));
  require("qk_norm_rope_backward", "dk_weight", dk_weight, {by.spec.width}, wide(x.dtype()));
  Arena::Scope scope(ctx.arena);
  const int64_t partials = by_device(
      ctx, [&] { return cpu::qk_norm_rope_partials(size); },
      [&] { return cuda::qk_norm_rope_partials(size); });
  const Tensor partial =
      ctx.arena.take("qk_norm_rope dweight partials", wide(x.dtype()), {partials, by.spec.width});
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::qk_norm_rope_backward<T>(dx.as<T>(), dq_weight.as<T>(), dk_weight.as<T>(), dy.as<T>(), x.as<T>(),
                                      rstd.as<T>(), partial.as<T>(), qk_norm_rope_input<T>(by), size);
      },
      [&]<class T>() {
        cuda::qk_norm_rope_backward<T>(ctx.stream(), dx.as<T>(), dq_weight.as<Wide<T>>(),
                                       dk_weight.as<Wide<T>>(), dy.as<T>(), x.as<T>(), rstd.as<Wide<T>>(),
                                       partial.as<Wide<T>>(), qk_norm_rope_input<Wide<T>>(by), size);
      });
}

}  // namespace kata
