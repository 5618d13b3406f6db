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
// Forms: chunked (tokens of a chunk by forward substitution, a state between chunks) and recurrent. On a GPU
// a chunk always has 64 tokens.
//
// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], o [B,T,Hq,dv] are views with free batch, token and head
// strides. Hq is a multiple of Hkv, and query head h reads key head h / (Hq / Hkv). beta [B,T,Hkv] in [0, 1]
// and errors [B,T,Hkv,dv] are contiguous, state [B,Hkv,n,dv] too. beta, the decay, states and errors are
// Wide: an error is a small difference where a key comes back, and all later writes are corrected by it.
// Aliasing: outputs alias no input, except that state_out may be state_in.
#pragma once

#include "ops/linear_attention.h"

namespace kata {

struct DeltaAttention {
  FeatureMap map;             // of the mixer
  Form form = Form::chunked;  // or recurrent
  int64_t chunk = 64;         // tokens, at most 64 (CPU); 64 on a GPU, whatever stands here
};

// The map on unit rows: no sigma, and the first-order maps have become dot products.
inline FeatureMap unit_map(const FeatureMap& map) {
  return {map.first_order() ? MapKind::identity : map.kind, map.width, map.groups, 1.0};
}

template <class T>
struct DeltaForward {
  TokenHeads<T> o;
  Wide<T>* errors;
  TokenHeads<const T> q, k, v;
  const Wide<T>* beta;
  const Wide<T>* state_in;  // null: empty
  Wide<T>* state_out;       // null: not wanted
  LogDecay<Wide<T>> decay;
  Wide<T>* scratch;
};

template <class T>
struct DeltaBackward {
  TokenHeads<T> dq, dk, dv;
  Wide<T>* dbeta;
  Wide<T>* dlog_decay;  // null: not wanted
  TokenHeads<const T> d_o, q, k, v;
  const Wide<T>*beta, *errors;  // errors of the forward pass
  LogDecay<Wide<T>> decay;
  Wide<T>* scratch;
};

template <class T>
struct DeltaStep {
  TokenHeads<T> o;
  TokenHeads<const T> q, k, v;
  const Wide<T>*beta, *log_decay;  // [B, Hkv]; log_decay may be null
  Wide<T>* state;
  Wide<T>* scratch;
};

namespace cpu {

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

// The gradient of the recurrent form goes in chunks of one token.
inline int64_t delta_attention_scratch(bool backward, const DeltaAttention& settings, const FeatureMap& map,
                                       const AttentionSize& size) {
  if (settings.form == Form::chunked)
    return delta_attention_chunked_scratch(backward, map, settings.chunk, size);
  return backward ? delta_attention_chunked_scratch(true, map, 1, size)
                  : delta_attention_recurrent_scratch(map, size);
}

}  // namespace cpu

namespace cuda {

// Scratch is counted in floats; it depends on the sizes alone. The step takes none.
template <class T>
void delta_attention_chunked_forward(GpuStream, const DeltaForward<T>&, const FeatureMap& map,
                                     const AttentionSize&);
template <class T>
void delta_attention_chunked_backward(GpuStream, const DeltaBackward<T>&, const FeatureMap& map,
                                      const AttentionSize&);
int64_t delta_attention_chunked_scratch(bool backward, const FeatureMap& map, const AttentionSize&);

template <class T>
void delta_attention_recurrent_forward(GpuStream, const DeltaForward<T>&, const FeatureMap& map,
                                       const AttentionSize&);
int64_t delta_attention_recurrent_scratch(const FeatureMap& map, const AttentionSize&);

template <class T>
void delta_attention_step(GpuStream, const DeltaStep<T>&, const FeatureMap& map, const AttentionSize&);

// Both forms have one gradient.
inline int64_t delta_attention_scratch(bool backward, const DeltaAttention& settings, const FeatureMap& map,
                                       const AttentionSize& size) {
  if (backward || settings.form == Form::chunked) return delta_attention_chunked_scratch(backward, map, size);
  return delta_attention_recurrent_scratch(map, size);
}

}  // namespace cuda

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
  const DType wide_type = wide(q.dtype());
  require(op, "errors", errors, {size.batch, size.tokens, size.kv_heads, size.value_width}, wide_type);
  require(op, "beta", beta, {size.batch, size.tokens, size.kv_heads}, wide_type);
  for (const Tensor* state : {&state_in, &state_out})
    if (state->defined()) require(op, "state", *state, state_shape(map, Read::raw, size), wide_type);
  require_decay(op, decay, size, wide_type);
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::delta_attention_scratch(false, settings, map, size); },
      [&] { return cuda::delta_attention_scratch(false, settings, map, size); });
  const Tensor scratch = ctx.arena.take("delta_attention scratch", wide_type, {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return DeltaForward<T>{token_heads<T>(o),
                           errors.as<Wide<T>>(),
                           token_heads<const T>(q),
                           token_heads<const T>(k),
                           token_heads<const T>(v),
                           beta.as<Wide<T>>(),
                           data_or_null<Wide<T>>(state_in),
                           data_or_null<Wide<T>>(state_out),
                           log_decay_of<Wide<T>>(decay, size),
                           scratch.as<Wide<T>>()};
  };
  const bool chunked = settings.form == Form::chunked;
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        if (chunked)
          cpu::delta_attention_chunked_forward<T>(call.template operator()<T>(), map, settings.chunk, size);
        else
          cpu::delta_attention_recurrent_forward<T>(call.template operator()<T>(), map, size);
      },
      [&]<class T>() {
        if (chunked)
          cuda::delta_attention_chunked_forward<T>(ctx.stream(), call.template operator()<T>(), map, size);
        else
          cuda::delta_attention_recurrent_forward<T>(ctx.stream(), call.template operator()<T>(), map, size);
      });
}

// dq, dk, dv = (shaped as q, k, v, strides free), dbeta = [B,T,Hkv], dlog_decay = likewise, defined where
// decay.log is; the sequence started from the empty state.
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
  const DType wide_type = wide(q.dtype());
  require(op, "errors", errors, {size.batch, size.tokens, size.kv_heads, size.value_width}, wide_type);
  require(op, "beta", beta, gates, wide_type);
  require(op, "dbeta", dbeta, gates, wide_type);
  require_decay(op, decay, size, wide_type);
  KATA_CHECK(dlog_decay.defined() == decay.log.defined(), "{}: log_decay and its gradient go together", op);
  if (dlog_decay.defined()) require(op, "dlog_decay", dlog_decay, gates, wide_type);
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::delta_attention_scratch(true, settings, map, size); },
      [&] { return cuda::delta_attention_scratch(true, settings, map, size); });
  const Tensor scratch = ctx.arena.take("delta_attention_backward scratch", wide_type, {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return DeltaBackward<T>{token_heads<T>(dq),
                            token_heads<T>(dk),
                            token_heads<T>(dv),
                            dbeta.as<Wide<T>>(),
                            data_or_null<Wide<T>>(dlog_decay),
                            token_heads<const T>(d_o),
                            token_heads<const T>(q),
                            token_heads<const T>(k),
                            token_heads<const T>(v),
                            beta.as<Wide<T>>(),
                            errors.as<Wide<T>>(),
                            log_decay_of<Wide<T>>(decay, size),
                            scratch.as<Wide<T>>()};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        const int64_t chunk = settings.form == Form::chunked ? settings.chunk : 1;
        cpu::delta_attention_chunked_backward<T>(call.template operator()<T>(), map, chunk, size);
      },
      [&]<class T>() {
        cuda::delta_attention_chunked_backward<T>(ctx.stream(), call.template operator()<T>(), map, size);
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
  const DType wide_type = wide(q.dtype());
  require(op, "state", state, state_shape(map, Read::raw, size), wide_type);
  require(op, "beta", beta, {size.batch, size.kv_heads}, wide_type);
  if (log_decay.defined()) require(op, "log_decay", log_decay, {size.batch, size.kv_heads}, wide_type);
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::delta_attention_step_scratch(map, size); }, [] { return int64_t{0}; });
  const Tensor scratch = ctx.arena.take("delta_attention_step scratch", wide_type, {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return DeltaStep<T>{token_heads<T>(o),       token_heads<const T>(q), token_heads<const T>(k),
                        token_heads<const T>(v), beta.as<Wide<T>>(),      data_or_null<Wide<T>>(log_decay),
                        state.as<Wide<T>>(),     scratch.as<Wide<T>>()};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() { cpu::delta_attention_step<T>(call.template operator()<T>(), map, size); },
      [&]<class T>() {
        cuda::delta_attention_step<T>(ctx.stream(), call.template operator()<T>(), map, size);
      });
}

}  // namespace kata
