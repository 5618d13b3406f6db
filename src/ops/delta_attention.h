// The delta rule: what a key already holds is subtracted before it is written again (MATH 4).
//
//   e_t = v_t - sum_{s<t} G[t,s] kappa(k_t, k_s) beta_s e_s
//   o_t = sum_{s<=t} G[t,s] kappa(q_t, k_s) beta_s e_s
//
// with G[t,s] = exp(sum of log a over s + 1 .. t), 1 without a decay, 0 across documents (ops/decay.h). The
// same as
//
//   S_t = a_t (I - beta_t f(k_t) f(k_t)^T) S_{t-1} + beta_t f(k_t) v_t^T        o_t = S_t^T f(q_t)
//
// e_t, the error, is v_t minus what the state before t answers to k_t.
//
// q and k are unit rows (ops/unit_feature.h): kappa is the plain score of the map on them, without sigma. The
// maps orthant and lorentz are then dot products, since their unit rows are features.
//
// backward, with U = beta e, N[t,s] = beta_t G[t,s] kappa(k_t, k_s) for s < t, and dU all that reads U:
//   dW = (I + N)^-T dU        dv = beta dW        dbeta_t = <dW_t, e_t>
//   the score of k_t and k_s gets -<dv_t, U_s> G[t,s], that of q_t and k_s gets <do_t, U_s> G[t,s]
//
// Forms: chunked (tokens of a chunk by forward substitution, a state between chunks) and recurrent.
//
// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], o [B,T,Hq,dv] are views with free batch, token and head
// strides. Hq is a multiple of Hkv, and query head h reads key head h / (Hq / Hkv). beta [B,T,Hkv] in [0, 1]
// and errors [B,T,Hkv,dv] are contiguous and Wide, state [B,Hkv,n,dv] too. Aliasing: outputs alias no input,
// except that state_out may be state_in.
#pragma once

#include "ops/linear_attention.h"

namespace kata {

struct DeltaAttention {
  FeatureMap map;             // of the mixer
  Form form = Form::chunked;  // or recurrent
  int64_t chunk = 64;         // tokens; the CPU form takes at most 64
};

// The map on unit rows: no sigma, and the first-order maps have become dot products.
inline FeatureMap unit_map(const FeatureMap& map) {
  return {map.first_order() ? MapKind::identity : map.kind, map.width, map.groups, 1.0};
}

namespace cpu {

template <class T>
struct DeltaForward {
  TokenHeads<T> o;
  T* errors;
  TokenHeads<const T> q, k, v;
  const T* beta;
  const T* state_in;  // null: empty
  T* state_out;       // null: not wanted
  LogDecay<T> decay;
  T* scratch;
};

template <class T>
struct DeltaBackward {
  TokenHeads<T> dq, dk, dv;
  T* dbeta;
  T* dlog_decay;  // null: not wanted
  TokenHeads<const T> d_o, q, k, v;
  const T *beta, *errors;  // errors of the forward pass
  LogDecay<T> decay;
  T* scratch;
};

template <class T>
struct DeltaStep {
  TokenHeads<T> o;
  TokenHeads<const T> q, k, v;
  const T *beta, *log_decay;  // [B, Hkv]; log_decay may be null
  T* state;
  T* scratch;
};

// map: unit_map of the mixer's. Scratch is counted in elements.
template <class T>
void delta_attention_chunked_forward(const DeltaForward<T>&, const FeatureMap& map, int64_t chunk,
                                     const AttentionSize&);
template <class T>
void delta_attention_chunked_backward(const DeltaBackward<T>&, const FeatureMap& map, int64_t chunk,
                                      const AttentionSize&);
int64_t delta_attention_chunked_scratch(bool backward, const FeatureMap& map, int64_t chunk,
                                        const AttentionSize&);

template <class T>
void delta_attention_recurrent_forward(const DeltaForward<T>&, const FeatureMap& map, const AttentionSize&);
int64_t delta_attention_recurrent_scratch(const FeatureMap& map, const AttentionSize&);

template <class T>
void delta_attention_step(const DeltaStep<T>&, const FeatureMap& map, const AttentionSize&);
int64_t delta_attention_step_scratch(const FeatureMap& map, const AttentionSize&);

}  // namespace cpu

// The delta rule has no CUDA form yet.
inline void require_cpu(const Context& ctx, const char* op) {
  if (ctx.device == Device::cuda)
    fail(ExitCode::device, "{}: the delta rule is computed on the CPU only so far; give --device cpu", op);
}

inline AttentionSize delta_attention_size(const char* op, const DeltaAttention& settings, const Tensor& q,
                                          const Tensor& k, const Tensor& v, const Tensor& o) {
  check(op, settings.map);
  const AttentionSize size = attention_size(op, q, k, v, o);
  KATA_CHECK(size.width == settings.map.width, "{}: q {} and a map of width {}", op, q.shape().str(),
             settings.map.width);
  KATA_CHECK(settings.form != Form::quadratic && settings.chunk >= 1,
             "{}: no quadratic form; chunk of {} tokens", op, settings.chunk);
  return size;
}

// state_in (undefined: empty) is read before state_out (undefined: not wanted) is written.
inline void delta_attention_forward(Context& ctx, const Tensor& o, const Tensor& errors, const Tensor& q,
                                    const Tensor& k, const Tensor& v, const Tensor& beta,
                                    const DeltaAttention& settings, const Tensor& state_in = {},
                                    const Tensor& state_out = {}, const Decay& decay = {}) {
  const char* op = "delta_attention";
  const AttentionSize size = delta_attention_size(op, settings, q, k, v, o);
  const FeatureMap map = unit_map(settings.map);
  require(op, "errors", errors, {size.batch, size.tokens, size.kv_heads, size.value_width}, wide(q.dtype()));
  require(op, "beta", beta, {size.batch, size.tokens, size.kv_heads}, wide(q.dtype()));
  for (const Tensor* state : {&state_in, &state_out})
    if (state->defined()) require(op, "state", *state, state_shape(map, Read::raw, size), wide(q.dtype()));
  require_decay(op, decay, size, wide(q.dtype()));
  require_cpu(ctx, op);
  Arena::Scope scope(ctx.arena);
  const bool chunked = settings.form == Form::chunked;
  const Tensor scratch =
      ctx.arena.take("delta_attention scratch", wide(q.dtype()),
                     {chunked ? cpu::delta_attention_chunked_scratch(false, map, settings.chunk, size)
                              : cpu::delta_attention_recurrent_scratch(map, size)});
  if (ctx.planning()) return;
  dispatch_float(q.dtype(), [&]<class T>() {
    const cpu::DeltaForward<T> call = {token_heads<T>(o),
                                       errors.as<T>(),
                                       token_heads<const T>(q),
                                       token_heads<const T>(k),
                                       token_heads<const T>(v),
                                       beta.as<T>(),
                                       state_in.defined() ? state_in.as<T>() : nullptr,
                                       state_out.defined() ? state_out.as<T>() : nullptr,
                                       log_decay_of<T>(decay, size),
                                       scratch.as<T>()};
    if (chunked)
      cpu::delta_attention_chunked_forward<T>(call, map, settings.chunk, size);
    else
      cpu::delta_attention_recurrent_forward<T>(call, map, size);
  });
}

// dq, dk, dv = (shaped as q, k, v, strides free), dbeta = [B,T,Hkv], dlog_decay = likewise, defined where
// decay.log is; the sequence started from the empty state. The recurrent form is chunks of one token here.
inline void delta_attention_backward(Context& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                     const Tensor& dbeta, const Tensor& d_o, const Tensor& q, const Tensor& k,
                                     const Tensor& v, const Tensor& beta, const Tensor& errors,
                                     const DeltaAttention& settings, const Decay& decay = {},
                                     const Tensor& dlog_decay = {}) {
  const char* op = "delta_attention_backward";
  const AttentionSize size = delta_attention_size(op, settings, q, k, v, d_o);
  delta_attention_size(op, settings, dq, dk, dv, d_o);
  const FeatureMap map = unit_map(settings.map);
  const Shape gates{size.batch, size.tokens, size.kv_heads};
  require_shape(op, "dq", dq, q.shape(), q.dtype());
  require_shape(op, "dk", dk, k.shape(), q.dtype());
  require_shape(op, "dv", dv, v.shape(), q.dtype());
  require(op, "errors", errors, {size.batch, size.tokens, size.kv_heads, size.value_width}, wide(q.dtype()));
  require(op, "beta", beta, gates, wide(q.dtype()));
  require(op, "dbeta", dbeta, gates, wide(q.dtype()));
  require_decay(op, decay, size, wide(q.dtype()));
  KATA_CHECK(dlog_decay.defined() == decay.log.defined(), "{}: log_decay and its gradient go together", op);
  if (dlog_decay.defined()) require(op, "dlog_decay", dlog_decay, gates, wide(q.dtype()));
  require_cpu(ctx, op);
  Arena::Scope scope(ctx.arena);
  const int64_t chunk = settings.form == Form::chunked ? settings.chunk : 1;
  const Tensor scratch = ctx.arena.take("delta_attention_backward scratch", wide(q.dtype()),
                                        {cpu::delta_attention_chunked_scratch(true, map, chunk, size)});
  if (ctx.planning()) return;
  dispatch_float(q.dtype(), [&]<class T>() {
    const cpu::DeltaBackward<T> call = {token_heads<T>(dq),
                                        token_heads<T>(dk),
                                        token_heads<T>(dv),
                                        dbeta.as<T>(),
                                        dlog_decay.defined() ? dlog_decay.as<T>() : nullptr,
                                        token_heads<const T>(d_o),
                                        token_heads<const T>(q),
                                        token_heads<const T>(k),
                                        token_heads<const T>(v),
                                        beta.as<T>(),
                                        errors.as<T>(),
                                        log_decay_of<T>(decay, size),
                                        scratch.as<T>()};
    cpu::delta_attention_chunked_backward<T>(call, map, chunk, size);
  });
}

// One token: q [B,Hq,d], k [B,Hkv,d], v [B,Hkv,dv], beta and log_decay (or undefined) [B,Hkv] -> o [B,Hq,dv];
// state is updated in place, then read.
inline void delta_attention_step(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& beta, const Tensor& state,
                                 const FeatureMap& mixer_map, const Tensor& log_decay = {}) {
  const char* op = "delta_attention_step";
  check(op, mixer_map);
  const FeatureMap map = unit_map(mixer_map);
  const AttentionSize size = attention_size(op, q, k, v, o);
  KATA_CHECK(size.width == map.width && q.rank() == 3, "{}: q {} and a map of width {}", op, q.shape().str(),
             map.width);
  require(op, "state", state, state_shape(map, Read::raw, size), wide(q.dtype()));
  require(op, "beta", beta, {size.batch, size.kv_heads}, wide(q.dtype()));
  if (log_decay.defined()) require(op, "log_decay", log_decay, {size.batch, size.kv_heads}, wide(q.dtype()));
  require_cpu(ctx, op);
  Arena::Scope scope(ctx.arena);
  const Tensor scratch = ctx.arena.take("delta_attention_step scratch", wide(q.dtype()),
                                        {cpu::delta_attention_step_scratch(map, size)});
  if (ctx.planning()) return;
  dispatch_float(q.dtype(), [&]<class T>() {
    cpu::delta_attention_step<T>(
        {token_heads<T>(o), token_heads<const T>(q), token_heads<const T>(k), token_heads<const T>(v),
         beta.as<T>(), log_decay.defined() ? log_decay.as<T>() : nullptr, state.as<T>(), scratch.as<T>()},
        map, size);
  });
}

}  // namespace kata
