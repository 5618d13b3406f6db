// Linear attention with a feature map: one function in three forms (MATH 1, 2, 3).
//
//   A[t,s] = exp(sum of log a over s + 1 .. t) <f(sqrt(sigma) q_t), f(sqrt(sigma) k_s)>, s <= t
//   D_t = sum_s A[t,s]
//   raw:         o_t = sum_s A[t,s] v_s
//   normalised:  o_t = sum_s A[t,s] v_s / D_t, and 0 (gradients too) where D_t <= 1e-20
//
// without a decay log a = 0. With documents (ops/documents.h) s runs over the token's own document.
//
// backward, with g_t = do_t / D_t and w_t = <o_t, do_t> / D_t (raw: g = do, w = 0):
//   dA[t,s] = <g_t, v_s> - w_t        dv_s = sum_t A[t,s] g_t        dq, dk through the score
//   dlog a_u = sum of A[t,s] dA[t,s] over s < u <= t
//
// Forms:
//   quadratic   tiles of scores, no state; least work at training lengths
//   chunked     scores inside a chunk, a state S = sum f(k) [v, 1] between chunks: time linear in T,
//               scratch constant in T
//   recurrent   token by token, constant memory: the step of generation, and the same over a sequence
//
// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], o [B,T,Hq,dv] are views with free batch, token and head
// strides. Hq is a multiple of Hkv, and query head h reads key head h / (Hq / Hkv).
// mass [B,T,Hq] = D_t unclamped, contiguous; undefined with a raw read.
// state [B,Hkv,n,dv + 1] (raw: [B,Hkv,n,dv]), contiguous: packed features, the last column is the mass.
// log_decay [B,T,Hkv] <= 0, contiguous, undefined without a decay; that of a document's first token is not
// read. Aliasing: outputs alias no input, except that state_out may be state_in.
#pragma once

#include "ops/decay.h"
#include "ops/feature_map.h"
#include "ops/token_heads.h"

namespace kata {

enum class Read { normalised, raw };
enum class Form { quadratic, chunked, recurrent };

struct LinearAttention {
  FeatureMap map;
  Read read = Read::normalised;
  Form form = Form::quadratic;
  int64_t chunk = 64;  // tokens, chunked form only
};

// What a form does, of one thing done in all three.
template <class F>
F* of_form(Form form, F* quadratic, F* chunked, F* recurrent) {
  return form == Form::quadratic ? quadratic : form == Form::chunked ? chunked : recurrent;
}

// At or below this mass an output is 0 and passes no gradient.
inline constexpr double mass_floor = 1e-20;

inline int64_t state_columns(Read read, int64_t value_width) {
  return value_width + (read == Read::normalised ? 1 : 0);
}
// Numbers that one sequence carries in one layer; reported beside every accuracy.
inline int64_t state_entries(const FeatureMap& map, Read read, int64_t kv_heads, int64_t value_width) {
  return kv_heads * map.features() * state_columns(read, value_width);
}

template <class T>
struct LinearAttentionForward {
  TokenHeads<T> o;
  Wide<T>* mass;  // null with a raw read
  TokenHeads<const T> q, k, v;
  const Wide<T>* state_in;  // null: empty
  Wide<T>* state_out;       // null: not wanted
  LogDecay<Wide<T>> decay;
  Wide<T>* scratch;  // linear_attention_*_scratch elements
};

template <class T>
struct LinearAttentionBackward {
  TokenHeads<T> dq, dk, dv;
  TokenHeads<const T> d_o, q, k, v, o;
  const Wide<T>* mass;  // of the forward pass; null with a raw read
  LogDecay<Wide<T>> decay;
  Wide<T>* dlog_decay;  // [B, T, Hkv]; null: not wanted
  Wide<T>* scratch;
};

template <class T>
struct LinearAttentionStep {
  TokenHeads<T> o;
  TokenHeads<const T> q, k, v;
  const Wide<T>* log_decay;  // [B, Hkv]; null: none
  Wide<T>* state;
  Wide<T>* scratch;
};

namespace cpu {

// Scratch is counted in elements; it depends on the sizes and on the number of threads.
template <class T>
void linear_attention_quadratic_forward(const LinearAttentionForward<T>&, const LinearAttention&,
                                        const AttentionSize&);
template <class T>
void linear_attention_quadratic_backward(const LinearAttentionBackward<T>&, const LinearAttention&,
                                         const AttentionSize&);
int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention&, const AttentionSize&);

template <class T>
void linear_attention_chunked_forward(const LinearAttentionForward<T>&, const LinearAttention&,
                                      const AttentionSize&);
template <class T>
void linear_attention_chunked_backward(const LinearAttentionBackward<T>&, const LinearAttention&,
                                       const AttentionSize&);
int64_t linear_attention_chunked_scratch(bool backward, const LinearAttention&, const AttentionSize&);

template <class T>
void linear_attention_recurrent_forward(const LinearAttentionForward<T>&, const LinearAttention&,
                                        const AttentionSize&);
template <class T>
void linear_attention_recurrent_backward(const LinearAttentionBackward<T>&, const LinearAttention&,
                                         const AttentionSize&);
int64_t linear_attention_recurrent_scratch(bool backward, const LinearAttention&, const AttentionSize&);

template <class T>
void linear_attention_step(const LinearAttentionStep<T>&, const FeatureMap&, Read, const AttentionSize&);
int64_t linear_attention_step_scratch(const FeatureMap&, Read, const AttentionSize&);

inline int64_t linear_attention_scratch(bool backward, const LinearAttention& settings,
                                        const AttentionSize& size) {
  return of_form(settings.form, linear_attention_quadratic_scratch, linear_attention_chunked_scratch,
                 linear_attention_recurrent_scratch)(backward, settings, size);
}

}  // namespace cpu

namespace cuda {

// Scratch is counted in floats; it depends on the sizes alone.
template <class T>
void linear_attention_quadratic_forward(GpuStream, const LinearAttentionForward<T>&, const LinearAttention&,
                                        const AttentionSize&);
template <class T>
void linear_attention_quadratic_backward(GpuStream, const LinearAttentionBackward<T>&, const LinearAttention&,
                                         const AttentionSize&);
int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention&, const AttentionSize&);

template <class T>
void linear_attention_chunked_forward(GpuStream, const LinearAttentionForward<T>&, const LinearAttention&,
                                      const AttentionSize&);
template <class T>
void linear_attention_chunked_backward(GpuStream, const LinearAttentionBackward<T>&, const LinearAttention&,
                                       const AttentionSize&);
int64_t linear_attention_chunked_scratch(bool backward, const LinearAttention&, const AttentionSize&);

template <class T>
void linear_attention_recurrent_forward(GpuStream, const LinearAttentionForward<T>&, const LinearAttention&,
                                        const AttentionSize&);
template <class T>
void linear_attention_recurrent_backward(GpuStream, const LinearAttentionBackward<T>&, const LinearAttention&,
                                         const AttentionSize&);
int64_t linear_attention_recurrent_scratch(bool backward, const LinearAttention&, const AttentionSize&);

template <class T>
void linear_attention_step(GpuStream, const LinearAttentionStep<T>&, const FeatureMap&, Read,
                           const AttentionSize&);
int64_t linear_attention_step_scratch(const FeatureMap&, Read, const AttentionSize&);

inline int64_t linear_attention_scratch(bool backward, const LinearAttention& settings,
                                        const AttentionSize& size) {
  return of_form(settings.form, linear_attention_quadratic_scratch, linear_attention_chunked_scratch,
                 linear_attention_recurrent_scratch)(backward, settings, size);
}

}  // namespace cuda

inline AttentionSize linear_attention_size(const char* op, const LinearAttention& settings, const Tensor& q,
                                           const Tensor& k, const Tensor& v, const Tensor& o) {
  check(op, settings.map);
  const AttentionSize size = attention_size(op, q, k, v, o);
  KATA_CHECK(size.width == settings.map.width, "{}: q {} and a map of width {}", op, q.shape().str(),
             settings.map.width);
  KATA_CHECK(settings.form != Form::chunked || settings.chunk >= 1, "{}: chunk of {} tokens", op,
             settings.chunk);
  return size;
}

// mass is [B, T, Hq] with a normalised read and undefined with a raw one.
inline void require_mass(const char* op, const Tensor& mass, Read read, const AttentionSize& size,
                         DType dtype) {
  if (read == Read::normalised)
    return require(op, "mass", mass, {size.batch, size.tokens, size.heads}, wide(dtype));
  KATA_CHECK(!mass.defined(), "{}: a raw read has no mass", op);
}

inline Shape state_shape(const FeatureMap& map, Read read, const AttentionSize& size) {
  return {size.batch, size.kv_heads, map.features(), state_columns(read, size.value_width)};
}

// state_in (undefined: empty) is read before state_out (undefined: not wanted) is written; quadratic has
// none.
inline void linear_attention_forward(Context& ctx, const Tensor& o, const Tensor& mass, const Tensor& q,
                                     const Tensor& k, const Tensor& v, const LinearAttention& settings,
                                     const Tensor& state_in = {}, const Tensor& state_out = {},
                                     const Decay& decay = {}) {
  const char* op = "linear_attention";
  const AttentionSize size = linear_attention_size(op, settings, q, k, v, o);
  require_mass(op, mass, settings.read, size, q.dtype());
  for (const Tensor* state : {&state_in, &state_out}) {
    if (!state->defined()) continue;
    KATA_CHECK(settings.form != Form::quadratic, "{}: the quadratic form carries no state", op);
    require(op, "state", *state, state_shape(settings.map, settings.read, size), wide(q.dtype()));
  }
  require_decay(op, decay, size, wide(q.dtype()));
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::linear_attention_scratch(false, settings, size); },
      [&] { return cuda::linear_attention_scratch(false, settings, size); });
  const Tensor scratch = ctx.arena.take("linear_attention scratch", wide(q.dtype()), {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return LinearAttentionForward<T>{token_heads<T>(o),
                                     data_or_null<Wide<T>>(mass),
                                     token_heads<const T>(q),
                                     token_heads<const T>(k),
                                     token_heads<const T>(v),
                                     data_or_null<Wide<T>>(state_in),
                                     data_or_null<Wide<T>>(state_out),
                                     log_decay_of<Wide<T>>(decay, size),
                                     scratch.as<Wide<T>>()};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        of_form(settings.form, cpu::linear_attention_quadratic_forward<T>,
                cpu::linear_attention_chunked_forward<T>,
                cpu::linear_attention_recurrent_forward<T>)(call.template operator()<T>(), settings, size);
      },
      [&]<class T>() {
        of_form(settings.form, cuda::linear_attention_quadratic_forward<T>,
                cuda::linear_attention_chunked_forward<T>, cuda::linear_attention_recurrent_forward<T>)(
            ctx.stream(), call.template operator()<T>(), settings, size);
      });
}

// dq, dk, dv = (shaped as q, k, v, strides free); the sequence started from the empty state. dlog_decay =
// [B, T, Hkv], defined where decay.log is.
inline void linear_attention_backward(Context& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                      const Tensor& d_o, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const Tensor& o, const Tensor& mass, const LinearAttention& settings,
                                      const Decay& decay = {}, const Tensor& dlog_decay = {}) {
  const char* op = "linear_attention_backward";
  const AttentionSize size = linear_attention_size(op, settings, q, k, v, o);
  linear_attention_size(op, settings, dq, dk, dv, d_o);
  require_shape(op, "dq", dq, q.shape(), q.dtype());
  require_shape(op, "dk", dk, k.shape(), q.dtype());
  require_shape(op, "dv", dv, v.shape(), q.dtype());
  require_mass(op, mass, settings.read, size, q.dtype());
  require_decay(op, decay, size, wide(q.dtype()));
  KATA_CHECK(dlog_decay.defined() == decay.log.defined(), "{}: log_decay and its gradient go together", op);
  if (dlog_decay.defined()) require(op, "dlog_decay", dlog_decay, decay.log.shape(), wide(q.dtype()));
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::linear_attention_scratch(true, settings, size); },
      [&] { return cuda::linear_attention_scratch(true, settings, size); });
  const Tensor scratch = ctx.arena.take("linear_attention_backward scratch", wide(q.dtype()), {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return LinearAttentionBackward<T>{token_heads<T>(dq),
                                      token_heads<T>(dk),
                                      token_heads<T>(dv),
                                      token_heads<const T>(d_o),
                                      token_heads<const T>(q),
                                      token_heads<const T>(k),
                                      token_heads<const T>(v),
                                      token_heads<const T>(o),
                                      data_or_null<Wide<T>>(mass),
                                      log_decay_of<Wide<T>>(decay, size),
                                      data_or_null<Wide<T>>(dlog_decay),
                                      scratch.as<Wide<T>>()};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        of_form(settings.form, cpu::linear_attention_quadratic_backward<T>,
                cpu::linear_attention_chunked_backward<T>,
                cpu::linear_attention_recurrent_backward<T>)(call.template operator()<T>(), settings, size);
      },
      [&]<class T>() {
        of_form(settings.form, cuda::linear_attention_quadratic_backward<T>,
                cuda::linear_attention_chunked_backward<T>, cuda::linear_attention_recurrent_backward<T>)(
            ctx.stream(), call.template operator()<T>(), settings, size);
      });
}

// One token: q [B,Hq,d], k [B,Hkv,d], v [B,Hkv,dv] -> o [B,Hq,dv]; state is updated in place, then read.
// log_decay: [B, Hkv] or undefined.
inline void linear_attention_step(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k,
                                  const Tensor& v, const Tensor& state, const FeatureMap& map, Read read,
                                  const Tensor& log_decay = {}) {
  const char* op = "linear_attention_step";
  check(op, map);
  const AttentionSize size = attention_size(op, q, k, v, o);
  KATA_CHECK(size.width == map.width && q.rank() == 3, "{}: q {} and a map of width {}", op, q.shape().str(),
             map.width);
  require(op, "state", state, state_shape(map, read, size), wide(q.dtype()));
  if (log_decay.defined()) require(op, "log_decay", log_decay, {size.batch, size.kv_heads}, wide(q.dtype()));
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::linear_attention_step_scratch(map, read, size); },
      [&] { return cuda::linear_attention_step_scratch(map, read, size); });
  const Tensor scratch = ctx.arena.take("linear_attention_step scratch", wide(q.dtype()), {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return LinearAttentionStep<T>{
        token_heads<T>(o),       token_heads<const T>(q),          token_heads<const T>(k),
        token_heads<const T>(v), data_or_null<Wide<T>>(log_decay), state.as<Wide<T>>(),
        scratch.as<Wide<T>>()};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        return cpu::linear_attention_step<T>(call.template operator()<T>(), map, read, size);
      },
      [&]<class T>() {
        return cuda::linear_attention_step<T>(ctx.stream(), call.template operator()<T>(), map, read, size);
      });
}

}  // namespace kata
