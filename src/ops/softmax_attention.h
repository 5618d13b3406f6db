// Causal softmax attention in tiles: no T x T matrix exists.
//
//   S[t,s] = scale <q_t, k_s>, s <= t        lse_t = log sum_s exp S[t,s]
//   o_t = sum_s P[t,s] v_s, P = exp(S - lse)
//
// backward, with e_t = <o_t, do_t>:
//   dv_s = sum_t P[t,s] do_t        dS = P (<do_t, v_s> - e_t)
//   dq_t = scale sum_s dS k_s       dk_s = scale sum_t dS q_t
//
// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], o [B,T,Hq,dv] are views with free batch, token and head
// strides. Hq is a multiple of Hkv, and query head h reads key head h / (Hq / Hkv). lse: Wide [B,T,Hq],
// contiguous. With documents (ops/documents.h) query t sees the keys from max(starts[b,t], 0) on. The running
// maximum starts at the first key, so scores of any finite size are safe. Aliasing: outputs alias no input.
#pragma once

#include "ops/documents.h"
#include "ops/token_heads.h"

namespace kata {

template <class T>
struct SoftmaxForward {
  TokenHeads<T> o;
  Wide<T>* lse;
  TokenHeads<const T> q, k, v;
  Wide<T>* scratch;
  Starts starts;            // [batch, tokens], counted from the token of query 0
  int64_t first_query = 0;  // the token that query 0 is; k and v start at token 0
};

template <class T>
struct SoftmaxBackward {
  TokenHeads<T> dq, dk, dv;
  TokenHeads<const T> d_o, q, k, v, o;
  const Wide<T>* lse;
  Wide<T>* scratch;
  Starts starts;
};

template <class T>
struct SoftmaxStep {
  TokenHeads<T> o;
  TokenHeads<const T> q, k, v;  // k and v: the caches
  Wide<T>* scratch;
  const int32_t* first = nullptr;  // [batch], the first cached token that a row sees; null: 0
  const int64_t* last = nullptr;   // on a GPU, [1]: the last one, instead of size.tokens - 1
};

// cache[:, position ..] = x
template <class T>
struct SoftmaxAppend {
  TokenHeads<T> cache;
  TokenHeads<const T> x;
  int64_t position = 0;
  const int64_t* place = nullptr;  // on a GPU, [1]: instead of position
};

namespace cpu {

// Scratch is counted in elements; it depends on the sizes and on the number of threads. size.tokens = the
// number of queries.
template <class T>
void softmax_attention_forward(const SoftmaxForward<T>&, T scale, const AttentionSize&);
int64_t softmax_attention_forward_scratch(const AttentionSize&);
template <class T>
void softmax_attention_backward(const SoftmaxBackward<T>&, T scale, const AttentionSize&);
int64_t softmax_attention_backward_scratch(const AttentionSize&);
// size.tokens = the number of cached tokens attended to.
template <class T>
void softmax_attention_step(const SoftmaxStep<T>&, T scale, const AttentionSize&);
int64_t softmax_attention_step_scratch(const AttentionSize&);
// Of x: kv_heads and width of the keys, or of the values.
template <class T>
void softmax_attention_append(const SoftmaxAppend<T>&, const AttentionSize&);

}  // namespace cpu

namespace cuda {
// Scratch, in floats: of the backward alone. Keys and values of at most 128.
template <class T>
void softmax_attention_forward(GpuStream stream, const SoftmaxForward<T>&, float scale, const AttentionSize&);
template <class T>
void softmax_attention_backward(GpuStream stream, const SoftmaxBackward<T>&, float scale,
                                const AttentionSize&);
int64_t softmax_attention_backward_scratch(const AttentionSize&);
template <class T>
void softmax_attention_step(GpuStream stream, const SoftmaxStep<T>&, float scale, const AttentionSize&);
template <class T>
void softmax_attention_append(GpuStream stream, const SoftmaxAppend<T>&, const AttentionSize&);
}  // namespace cuda

// Sizes of a call whose q and o hold the last tokens of k and v, from first_query on.
inline AttentionSize softmax_size(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& o, int64_t first_query) {
  if (first_query == 0) return attention_size(op, q, k, v, o);
  KATA_CHECK(q.rank() == 4 && k.rank() == 4 && first_query > 0 && q.dim(1) + first_query == k.dim(1),
             "{}: queries {} from token {} on, of keys {}", op, q.shape().str(), first_query,
             k.shape().str());
  AttentionSize size = attention_size(op, k, k, v, v);  // of the keys and values among themselves
  size.tokens = q.dim(1);
  size.heads = q.dim(2);
  KATA_CHECK(size.heads > 0 && size.heads % size.kv_heads == 0, "{}: q {}, k {}", op, q.shape().str(),
             k.shape().str());
  require_shape(op, "q", q, {size.batch, size.tokens, size.heads, size.width}, q.dtype());
  require_shape(op, "k", k, k.shape(), q.dtype());
  require_shape(op, "o", o, {size.batch, size.tokens, size.heads, size.value_width}, q.dtype());
  return size;
}

// Optional: starts [B,T]. Prefill over a cache: k and v hold T tokens (views of the caches up to the last
// one), q and o [B,T - first_query,..] the last of them; lse [B,T - first_query,Hq] and starts
// [B,T - first_query], which count from token first_query and are negative where a document begins before it.
inline void softmax_attention_forward(Context& ctx, const Tensor& o, const Tensor& lse, const Tensor& q,
                                      const Tensor& k, const Tensor& v, double scale,
                                      const Tensor& starts = {}, int64_t first_query = 0) {
  const char* op = "softmax_attention";
  const AttentionSize size = softmax_size(op, q, k, v, o, first_query);
  require(op, "lse", lse, {size.batch, size.tokens, size.heads}, wide(q.dtype()));
  require_starts(op, starts, size.batch, size.tokens);
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::softmax_attention_forward_scratch(size); }, [&] { return int64_t{0}; });
  const Tensor scratch = ctx.arena.take("softmax_attention scratch", wide(q.dtype()), {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return SoftmaxForward<T>{
        token_heads<T>(o),       lse.as<Wide<T>>(),     token_heads<const T>(q), token_heads<const T>(k),
        token_heads<const T>(v), scratch.as<Wide<T>>(), starts_of(starts),       first_query};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        cpu::softmax_attention_forward<T>(call.template operator()<T>(), static_cast<T>(scale), size);
      },
      [&]<class T>() {
        cuda::softmax_attention_forward<T>(ctx.stream(), call.template operator()<T>(),
                                           static_cast<float>(scale), size);
      });
}

// dq, dk, dv = (shaped as q, k, v, strides free). Optional: starts [B,T].
inline void softmax_attention_backward(Context& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                       const Tensor& d_o, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Tensor& o, const Tensor& lse, double scale,
                                       const Tensor& starts = {}) {
  const char* op = "softmax_attention_backward";
  const AttentionSize size = attention_size(op, q, k, v, o);
  attention_size(op, dq, dk, dv, d_o);
  require_shape(op, "dq", dq, q.shape(), q.dtype());
  require_shape(op, "dk", dk, k.shape(), q.dtype());
  require_shape(op, "dv", dv, v.shape(), q.dtype());
  require(op, "lse", lse, {size.batch, size.tokens, size.heads}, wide(q.dtype()));
  require_starts(op, starts, size.batch, size.tokens);
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::softmax_attention_backward_scratch(size); },
      [&] { return cuda::softmax_attention_backward_scratch(size); });
  const Tensor scratch = ctx.arena.take("softmax_attention_backward scratch", wide(q.dtype()), {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return SoftmaxBackward<T>{token_heads<T>(dq),        token_heads<T>(dk),      token_heads<T>(dv),
                              token_heads<const T>(d_o), token_heads<const T>(q), token_heads<const T>(k),
                              token_heads<const T>(v),   token_heads<const T>(o), lse.as<Wide<T>>(),
                              scratch.as<Wide<T>>(),     starts_of(starts)};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        cpu::softmax_attention_backward<T>(call.template operator()<T>(), static_cast<T>(scale), size);
      },
      [&]<class T>() {
        cuda::softmax_attention_backward<T>(ctx.stream(), call.template operator()<T>(),
                                            static_cast<float>(scale), size);
      });
}

// A place in a cache that is read where it lies, in the memory of a GPU.
inline void require_place(const Context& ctx, const char* op, const Tensor& place) {
  if (!place.defined()) return;
  KATA_CHECK(ctx.device == Device::cuda, "{}: a place in device memory on the CPU", op);
  require(op, "place", place, {1}, DType::i64);
}

// cache [B,capacity,Hkv,d] = x [B,T,Hkv,d], or [B,Hkv,d] of one token, from token `position` on; place, int64
// [1] in the memory of a GPU, counts instead of it.
inline void softmax_attention_append(Context& ctx, const Tensor& cache, const Tensor& x, int64_t position,
                                     const Tensor& place = {}) {
  const char* op = "softmax_attention_append";
  const AttentionSize size = attention_size(op, x, x, x, x);
  KATA_CHECK(position >= 0 && cache.rank() == 4 && position + size.tokens <= cache.dim(1),
             "{}: tokens {}..{} of a cache {}", op, position, position + size.tokens, cache.shape().str());
  require_shape(op, "cache", cache, {size.batch, cache.dim(1), size.kv_heads, size.width}, x.dtype());
  require_place(ctx, op, place);
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return SoftmaxAppend<T>{token_heads<T>(cache), token_heads<const T>(x), position,
                            data_or_null<int64_t>(place)};
  };
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() { cpu::softmax_attention_append<T>(call.template operator()<T>(), size); },
      [&]<class T>() {
        cuda::softmax_attention_append<T>(ctx.stream(), call.template operator()<T>(), size);
      });
}

// One token: q [B,Hq,d] -> o [B,Hq,dv] over the first `length` tokens of k_cache [B,capacity,Hkv,d] and
// v_cache [B,capacity,Hkv,dv], into which the caller has put the current one. Optional: first, int32 [B],
// below `length`: row b sees the cached tokens from first[b] on (its document begins there). last, int64 [1]
// in the memory of a GPU: the last cached token that is seen, instead of length - 1, so that a recorded step
// may be launched at another place.
inline void softmax_attention_step(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k_cache,
                                   const Tensor& v_cache, int64_t length, double scale,
                                   const Tensor& first = {}, const Tensor& last = {}) {
  const char* op = "softmax_attention_step";
  KATA_CHECK(q.rank() == 3 && o.rank() == 3 && k_cache.rank() == 4 && v_cache.rank() == 4,
             "{}: ranks of q {} and k_cache {}", op, q.shape().str(), k_cache.shape().str());
  const AttentionSize size = {q.dim(0), length, q.dim(1), k_cache.dim(2), q.dim(2), v_cache.dim(3)};
  KATA_CHECK(size.kv_heads > 0 && size.heads > 0 && size.heads % size.kv_heads == 0, "{}: q {}, k_cache {}",
             op, q.shape().str(), k_cache.shape().str());
  KATA_CHECK(length >= 1 && length <= k_cache.dim(1), "{}: {} of {} cached tokens", op, length,
             k_cache.dim(1));
  const Shape cache = {size.batch, k_cache.dim(1), size.kv_heads, size.width};
  require_shape(op, "k_cache", k_cache, cache, q.dtype());
  require_shape(op, "v_cache", v_cache, {cache[0], cache[1], cache[2], size.value_width}, q.dtype());
  require_shape(op, "o", o, {size.batch, size.heads, size.value_width}, q.dtype());
  if (first.defined()) require(op, "first", first, {size.batch}, DType::i32);
  require_place(ctx, op, last);
  Arena::Scope scope(ctx.arena);
  const int64_t elements = by_device(
      ctx, [&] { return cpu::softmax_attention_step_scratch(size); }, [&] { return int64_t{0}; });
  const Tensor scratch = ctx.arena.take("softmax_attention_step scratch", wide(q.dtype()), {elements});
  if (ctx.planning()) return;
  const auto call = [&]<class T>() {
    return SoftmaxStep<T>{token_heads<T>(o),
                          token_heads<const T>(q),
                          token_heads<const T>(k_cache),
                          token_heads<const T>(v_cache),
                          scratch.as<Wide<T>>(),
                          data_or_null<int32_t>(first),
                          data_or_null<int64_t>(last)};
  };
  dispatch(
      ctx, q.dtype(),
      [&]<class T>() {
        cpu::softmax_attention_step<T>(call.template operator()<T>(), static_cast<T>(scale), size);
      },
      [&]<class T>() {
        cuda::softmax_attention_step<T>(ctx.stream(), call.template operator()<T>(),
                                        static_cast<float>(scale), size);
      });
}

}  // namespace kata
