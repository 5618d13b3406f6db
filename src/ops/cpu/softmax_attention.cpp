#include "ops/softmax_attention.h"

#include <cmath>
#include <limits>

#include "ops/cpu/causal_tiles.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/vector_math.h"

// Floor: each pair of a query and a visible key takes 2 (d + dv) operations forward and 2 (3 d + 2 dv)
// backward, at the rate of the matrix product, and one exponential each way.
namespace kata::cpu {

namespace {

template <class T>
void scale_row(T* x, T factor, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] *= factor;
}

template <class T>
T dot(const T* x, const T* y, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] * y[j];
  return sum;
}

// x = exp(x - top); returns the sum.
template <class T>
T exponentials(T* x, T top, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t s = 0; s < n; ++s) {
    x[s] = fast_exp(x[s] - top);
    sum += x[s];
  }
  return sum;
}

// The matrices are transposed, [keys][query_tile] (ops/cpu/causal_tiles.h).
template <class T>
struct ForwardScratch {
  ForwardScratch(T* base, const AttentionSize& size)
      : slices(base),
        p(slices.take(key_block * query_tile)),
        qt(slices.take(size.width * query_tile)),
        top(slices.take(query_tile)),
        sum(slices.take(query_tile)),
        factor(slices.take(query_tile)) {}
  Slices<T> slices;
  T *p, *qt;     // scores, then exponentials; [width][query_tile]
  T *top, *sum;  // per query: the largest score so far, and the sum of exponentials below it
  T* factor;     // per query: what the latest block multiplies the earlier sums by
};

template <class T>
struct BackwardScratch {
  BackwardScratch(T* base, const AttentionSize& size)
      : slices(base),
        p(slices.take(key_block * query_tile)),
        ds(slices.take(key_block * query_tile)),
        qt(slices.take(size.width * query_tile)),
        gt(slices.take(size.value_width * query_tile)),
        e(slices.take(query_tile)),
        lse(slices.take(query_tile)) {}
  Slices<T> slices;
  T *p, *ds;
  T *qt, *gt;  // [width][query_tile], [dv][query_tile]
  T *e, *lse;  // per query: <o, do>, and the stored lse
};

// What the queries of a tile see of keys that documents hide: starts of the tile's queries, or null. Key
// `before` is the token of the first query of all, from which starts count.
struct Mask {
  const int32_t* starts;
  int64_t before;

  static Mask of(const Starts& starts, int64_t b, int64_t query, int64_t before = 0) {
    return {starts.given() ? starts.data + b * starts.time + query : nullptr, before};
  }
  // The keys of the tile begin here: starts do not fall along t, so the first query reaches back furthest.
  int64_t first_key() const { return starts == nullptr ? 0 : std::max<int64_t>(before + starts[0], 0); }
  // The block without the queries that see none of its keys: those of documents that begin after its last.
  KeyBlock narrowed(KeyBlock block) const {
    if (starts == nullptr) return block;
    const int32_t* first = starts + block.query;
    const int64_t last_key = block.key + block.keys - 1;
    block.queries = std::upper_bound(first, first + block.queries, last_key - before) - first;
    return block;
  }
};

// body(s, from, to) for every key s of the block: its queries [from, to) see it; those before are earlier,
// those after are of a later document.
template <class Body>
void for_visible(const KeyBlock& block, const Mask& mask, Body&& body) {
  const int32_t* starts = mask.starts == nullptr ? nullptr : mask.starts + block.query;
  int64_t to = starts == nullptr ? block.queries : 0;
  for (int64_t s = 0; s < block.keys; ++s) {
    while (to < block.queries && mask.before + starts[to] <= block.key + s) ++to;
    body(s, block.diagonal ? s : int64_t{0}, to);
  }
}

// Sets to 0 what the queries of a block do not see.
template <class T>
void zero_hidden(T* a, const KeyBlock& block, const Mask& mask) {
  zero_hidden(a, block);
  if (mask.starts == nullptr) return;
  for_visible(block, mask, [&](int64_t s, int64_t, int64_t to) {
    std::fill(a + s * query_tile + to, a + s * query_tile + block.queries, T(0));
  });
}

// Turns the scores of a block into exponentials under the running maximum of each query. A query that has
// seen no key yet has the lowest maximum and the sum 0, and the factor 1.
template <class T>
void online_exponentials(const ForwardScratch<T>& scratch, const KeyBlock& block, const Mask& mask) {
  T *top = scratch.top + block.query, *sum = scratch.sum + block.query,
    *factor = scratch.factor + block.query;
  for (int64_t t = 0; t < block.queries; ++t) factor[t] = top[t];
  for_visible(block, mask, [&](int64_t s, int64_t from, int64_t to) {
    const T* p = scratch.p + s * query_tile;
#pragma omp simd
    for (int64_t t = from; t < to; ++t) top[t] = p[t] > top[t] ? p[t] : top[t];
  });
#pragma omp simd
  for (int64_t t = 0; t < block.queries; ++t) {
    factor[t] = fast_exp(factor[t] - top[t]);
    sum[t] *= factor[t];
  }
  for_visible(block, mask, [&](int64_t s, int64_t from, int64_t to) {
    T* p = scratch.p + s * query_tile;
#pragma omp simd
    for (int64_t t = from; t < to; ++t) {
      p[t] = fast_exp(p[t] - top[t]);
      sum[t] += p[t];
    }
  });
  zero_hidden(scratch.p, block, mask);
}

template <class T>
void forward_tile(const SoftmaxForward<T>& call, T scale, const AttentionSize& size,
                  const ForwardScratch<T>& scratch, int64_t b, int64_t h, int64_t begin, int64_t end) {
  const int64_t m = end - begin, kv = h / size.group(), width = size.value_width, first = call.first_query;
  const Rows<const T> q = head_rows(call.q, b, h), k = head_rows(call.k, b, kv), v = head_rows(call.v, b, kv);
  const Rows<T> o = head_rows(call.o, b, h);
  const Mask mask = Mask::of(call.starts, b, begin, first);
  transpose_rows(scratch.qt, query_tile, q.from(begin), m, size.width, T(1));
  std::fill_n(scratch.sum, m, T(0));
  std::fill_n(scratch.top, m, std::numeric_limits<T>::lowest());
  zero_rows(o, begin, end, width);
  for_each_key_block(first + begin, first + end, mask.first_key(), [&](const KeyBlock& whole) {
    const KeyBlock block = mask.narrowed(whole);
    gemm(Op::none, Op::none, block.keys, block.queries, size.width, scale, k.at(block.key), k.stride,
         scratch.qt + block.query, query_tile, T(0), scratch.p, query_tile);
    online_exponentials(scratch, block, mask);
    const Rows<T> rows = o.from(begin + block.query);
    for (int64_t t = 0; t < block.queries; ++t)
      if (scratch.factor[block.query + t] != 1) scale_row(rows.at(t), scratch.factor[block.query + t], width);
    gemm(Op::transpose, Op::none, block.queries, width, block.keys, T(1), scratch.p, query_tile,
         v.at(block.key), v.stride, T(1), rows.data, rows.stride);
  });
  for (int64_t t = 0; t < m; ++t) {
    scale_row(o.at(begin + t), 1 / scratch.sum[t], width);
    call.lse[(b * size.tokens + begin + t) * size.heads + h] = scratch.top[t] + std::log(scratch.sum[t]);
  }
}

// p = P and ds = P (<do, v> - e), of which ds holds <do, v> and p the scores.
template <class T>
void score_gradients(const BackwardScratch<T>& scratch, const KeyBlock& block, const Mask& mask) {
  const T *lse = scratch.lse + block.query, *e = scratch.e + block.query;
  for (int64_t s = 0; s < block.keys; ++s) {
    T *p = scratch.p + s * query_tile, *ds = scratch.ds + s * query_tile;
#pragma omp simd
    for (int64_t t = 0; t < block.queries; ++t) {
      p[t] = fast_exp(p[t] - lse[t]);
      ds[t] = p[t] * (ds[t] - e[t]);
    }
  }
  zero_hidden(scratch.p, block, mask);
  zero_hidden(scratch.ds, block, mask);
}

template <class T>
void backward_tile(const SoftmaxBackward<T>& call, T scale, const AttentionSize& size,
                   const BackwardScratch<T>& scratch, int64_t b, int64_t h, int64_t begin, int64_t end,
                   const Rows<T>& dk, const Rows<T>& dv) {
  const int64_t m = end - begin, kv = h / size.group(), width = size.value_width;
  const Rows<const T> q = head_rows(call.q, b, h), k = head_rows(call.k, b, kv), v = head_rows(call.v, b, kv);
  const Rows<const T> d_o = head_rows(call.d_o, b, h), o = head_rows(call.o, b, h);
  const Rows<T> dq = head_rows(call.dq, b, h);
  for (int64_t t = 0; t < m; ++t) {
    scratch.e[t] = dot(o.at(begin + t), d_o.at(begin + t), width);
    scratch.lse[t] = call.lse[(b * size.tokens + begin + t) * size.heads + h];
  }
  transpose_rows(scratch.qt, query_tile, q.from(begin), m, size.width, T(1));
  transpose_rows(scratch.gt, query_tile, d_o.from(begin), m, width, T(1));
  zero_rows(dq, begin, end, size.width);
  const Mask mask = Mask::of(call.starts, b, begin);
  for_each_key_block(begin, end, mask.first_key(), [&](const KeyBlock& whole) {
    const KeyBlock block = mask.narrowed(whole);
    const int64_t first = begin + block.query, n = block.keys, rows = block.queries;
    gemm(Op::none, Op::none, n, rows, size.width, scale, k.at(block.key), k.stride, scratch.qt + block.query,
         query_tile, T(0), scratch.p, query_tile);
    gemm(Op::none, Op::none, n, rows, width, T(1), v.at(block.key), v.stride, scratch.gt + block.query,
         query_tile, T(0), scratch.ds, query_tile);
    score_gradients(scratch, block, mask);
    gemm(Op::none, Op::none, n, width, rows, T(1), scratch.p, query_tile, d_o.at(first), d_o.stride, T(1),
         dv.at(block.key), dv.stride);
    gemm(Op::transpose, Op::none, rows, size.width, n, scale, scratch.ds, query_tile, k.at(block.key),
         k.stride, T(1), dq.at(first), dq.stride);
    gemm(Op::none, Op::none, n, size.width, rows, scale, scratch.ds, query_tile, q.at(first), q.stride, T(1),
         dk.at(block.key), dk.stride);
  });
}

// One query head over the cached tokens, a block of keys at a time.
template <class T>
void step_head(const SoftmaxStep<T>& call, T scale, const AttentionSize& size, T* p, int64_t b, int64_t h) {
  const int64_t kv = h / size.group(), width = size.value_width;
  const Rows<const T> k = head_rows(call.k, b, kv), v = head_rows(call.v, b, kv);
  const T* q = call.q.at(b, 0, h);
  T* o = call.o.at(b, 0, h);
  T top = std::numeric_limits<T>::lowest(), sum = 0;
  std::fill_n(o, width, T(0));
  for (int64_t s = call.first == nullptr ? 0 : call.first[b]; s < size.tokens; s += key_block) {
    const int64_t n = std::min(key_block, size.tokens - s);
    const T before = top;
    for (int64_t i = 0; i < n; ++i) {
      p[i] = scale * dot(q, k.at(s + i), size.width);
      top = p[i] > top ? p[i] : top;
    }
    const T factor = fast_exp(before - top);
    sum = sum * factor + exponentials(p, top, n);
    scale_row(o, factor, width);
    for (int64_t i = 0; i < n; ++i) {
      const T* value = v.at(s + i);
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) o[j] += p[i] * value[j];
    }
  }
  scale_row(o, 1 / sum, width);
}

}  // namespace

int64_t softmax_attention_forward_scratch(const AttentionSize& size) {
  return thread_count() * ForwardScratch<float>(nullptr, size).slices.used();
}
int64_t softmax_attention_backward_scratch(const AttentionSize& size) {
  return backward_partials(size) + thread_count() * BackwardScratch<float>(nullptr, size).slices.used();
}
int64_t softmax_attention_step_scratch(const AttentionSize&) {
  return thread_count() * key_block;
}

template <class T>
void softmax_attention_forward(const SoftmaxForward<T>& call, T scale, const AttentionSize& size) {
  const int64_t tiles = ceil_div(size.tokens, query_tile);
  const int64_t stride = ForwardScratch<T>(nullptr, size).slices.used();
  parallel_for(size.batch * size.heads * tiles, [&](int64_t unit) {
    const ForwardScratch<T> scratch(call.scratch + thread_index() * stride, size);
    const int64_t begin = (tiles - 1 - unit % tiles) * query_tile;  // the longest first
    forward_tile(call, scale, size, scratch, unit / tiles / size.heads, unit / tiles % size.heads, begin,
                 std::min(begin + query_tile, size.tokens));
  });
}

template <class T>
void softmax_attention_backward(const SoftmaxBackward<T>& call, T scale, const AttentionSize& size) {
  const int64_t stride = BackwardScratch<T>(nullptr, size).slices.used();
  T* thread_scratch = call.scratch + backward_partials(size);
  backward_over_tiles(
      call.dk, call.dv, call.scratch, size,
      [&](int64_t b, int64_t h, int64_t begin, int64_t end, const Rows<T>& dk, const Rows<T>& dv) {
        const BackwardScratch<T> scratch(thread_scratch + thread_index() * stride, size);
        backward_tile(call, scale, size, scratch, b, h, begin, end, dk, dv);
      },
      [](int64_t, int64_t, int64_t, int64_t) {});
}

template <class T>
void softmax_attention_append(const SoftmaxAppend<T>& call, const AttentionSize& size) {
  for (int64_t b = 0; b < size.batch; ++b)
    for (int64_t t = 0; t < size.tokens; ++t)
      for (int64_t h = 0; h < size.kv_heads; ++h)
        std::copy_n(call.x.at(b, t, h), size.width, call.cache.at(b, call.position + t, h));
}

template <class T>
void softmax_attention_step(const SoftmaxStep<T>& call, T scale, const AttentionSize& size) {
  parallel_for(size.batch * size.heads, [&](int64_t unit) {
    step_head(call, scale, size, call.scratch + thread_index() * key_block, unit / size.heads,
              unit % size.heads);
  });
}

#define KATA_INSTANTIATE(T)                                                                        \
  template void softmax_attention_forward<T>(const SoftmaxForward<T>&, T, const AttentionSize&);   \
  template void softmax_attention_backward<T>(const SoftmaxBackward<T>&, T, const AttentionSize&); \
  template void softmax_attention_append<T>(const SoftmaxAppend<T>&, const AttentionSize&);        \
  template void softmax_attention_step<T>(const SoftmaxStep<T>&, T, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
