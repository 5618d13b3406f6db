// The delta rule in chunks: inside a chunk a unit triangular system, between chunks a state
// (ops/delta_attention.h).
//
// With g, h, a the decay from the chunk's start to a token, from a token to its end, and over the chunk:
//
//   V' = V - g f(K) S;  E = (I + L)^-1 V', L[t,s] = G kappa(k_t, k_s) beta_s for s < t;  U = beta E
//   o = g f(Q) S + G kappa(q, k) U;  S = a S + f(K)^T h U
//
// The system is solved by substitution; a product of powers of L would lose every digit on repeated keys
// (MATH 4). Backward needs S at the start of each chunk, chunks descending. States are kept at the start of
// every segment of sqrt(chunks) chunks, and those between are built again from U: memory grows with sqrt(T).
//
// Floor: per token and head 6 n dv operations between chunks forward, 16 n dv backward (four of them to build
// the states again), and C / 2 pairs of scores of k with k and of q with k inside.
#include "ops/cpu/delta_chunk.h"

namespace kata::cpu {

namespace {

template <class T>
using ForwardHead = DeltaHead<T, DeltaForward<T>>;
template <class T>
using BackwardHead = DeltaHead<T, DeltaBackward<T>>;

// E = (I + L)^-1 (V - g f(K) S). empty: S = 0
template <class T>
void solve_errors(const ForwardHead<T>& head, const typename ForwardHead<T>::Chunk& c, bool empty) {
  const DeltaScratch<T>& scratch = head.scratch;
  const int64_t columns = head.plan.columns;
  if (empty)
    std::fill_n(scratch.x, c.tokens * columns, T(0));
  else
    head.read(scratch.x, c, scratch.uk, scratch.state, c.decay.read);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const T* v = head.v.at(c.range.begin + t);
    T* x = scratch.x + t * columns;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) x[j] = v[j] - x[j];
  }
  head.key_scores(c);
  for (int64_t s = 0; s < c.tokens; ++s)
    scale_all(scratch.a + s * query_tile, head.beta(c.range.begin + s), c.tokens);
  solve_unit_upper(Op::transpose, c.tokens, columns, scratch.a, query_tile, scratch.x, columns);
  for (int64_t t = 0; t < c.tokens; ++t)
    std::copy_n(scratch.x + t * columns, columns, head.errors(c.range.begin + t));
}

template <class T>
void read_chunk(const ForwardHead<T>& head, const typename ForwardHead<T>::Chunk& c, int64_t h, bool empty) {
  const DeltaScratch<T>& scratch = head.scratch;
  const int64_t columns = head.plan.columns;
  const Rows<T> o = head_rows(head.call.o, head.b, h).from(c.range.begin);
  if (empty) {
    zero_rows(o, 0, c.tokens, columns);
  } else {
    head.load_queries(c, h);
    head.read(scratch.x, c, scratch.uq, scratch.state, c.decay.read);
    for (int64_t t = 0; t < c.tokens; ++t) std::copy_n(scratch.x + t * columns, columns, o.at(t));
  }
  head.query_scores(c, h);
  gemm(Op::transpose, Op::none, c.tokens, columns, c.tokens, T(1), scratch.a, query_tile, scratch.u, columns,
       T(1), o.data, o.stride);
}

template <class T>
void forward_head(const ForwardHead<T>& head) {
  T* state = head.scratch.state;
  const int64_t n = head.plan.state(), at = (head.b * head.size.kv_heads + head.kv) * n;
  if (head.call.state_in != nullptr)
    std::copy_n(head.call.state_in + at, n, state);
  else
    std::fill_n(state, n, T(0));
  for (int64_t i = 0; i < head.plan.chunks; ++i) {
    const auto c = head.chunk(i);
    const bool empty = i == 0 && head.call.state_in == nullptr;
    head.load_keys(c);
    solve_errors(head, c, empty);
    head.load_u(c);
    for (int64_t h = head.first_head(); h < head.end_head(); ++h) read_chunk(head, c, h, empty);
    if (i + 1 < head.plan.chunks || head.call.state_out != nullptr) head.write(state, c);
  }
  if (head.call.state_out != nullptr) std::copy_n(state, n, head.call.state_out + at);
}

// dW = (I + N)^-T (h f(K) dS + sum over query heads of G kappa(q, k)^T do), then dv = beta dW, dbeta = <dW,
// E>, and the start of dc. For dc a token's own row of scores with earlier keys counts with both signs, as
// query and in the share of its key: -2 <dv_t, v_t - e_t>, since that row answers v_t - e_t.
template <class T>
void solve_gradient(const BackwardHead<T>& head, const typename BackwardHead<T>::Chunk& c, bool last) {
  const DeltaScratch<T>& scratch = head.scratch;
  const int64_t columns = head.plan.columns;
  if (last)
    std::fill_n(scratch.dw, c.tokens * columns, T(0));
  else
    head.read(scratch.dw, c, scratch.uk, scratch.state, c.decay.write);
  for (int64_t h = head.first_head(); h < head.end_head(); ++h) {
    const Rows<const T> d_o = head_rows(head.call.d_o, head.b, h).from(c.range.begin);
    head.query_scores(c, h);
    gemm(Op::none, Op::none, c.tokens, columns, c.tokens, T(1), scratch.a, query_tile, d_o.data, d_o.stride,
         T(1), scratch.dw, columns);
  }
  head.key_scores(c);
  for (int64_t s = 0; s < c.tokens; ++s)
    for (int64_t t = s + 1; t < c.tokens; ++t) scratch.a[s * query_tile + t] *= head.beta(c.range.begin + t);
  solve_unit_upper(Op::none, c.tokens, columns, scratch.a, query_tile, scratch.dw, columns);
  for (int64_t t = c.range.begin; t < c.range.end; ++t) {
    const T *dw = scratch.dw + (t - c.range.begin) * columns, *e = head.errors(t), *v = head.v.at(t);
    const T beta = head.beta(t);
    T *dv = head.call.dv.at(head.b, t, head.kv), dbeta = 0, answer = 0;
#pragma omp simd reduction(+ : dbeta, answer)
    for (int64_t j = 0; j < columns; ++j) {
      dv[j] = beta * dw[j];
      dbeta += dw[j] * e[j];
      answer += dv[j] * (v[j] - e[j]);
    }
    head.call.dbeta[head.gate(t)] = dbeta;
    if (head.call.dlog_decay != nullptr) head.call.dlog_decay[head.gate(t)] = -2 * answer;
  }
}

// a[s][t] = sign <u_s, rows_t>
template <class T>
void score_gradients(const BackwardHead<T>& head, const typename BackwardHead<T>::Chunk& c,
                     const Rows<const T>& rows, T sign) {
  const DeltaScratch<T>& scratch = head.scratch;
  gemm(Op::none, Op::transpose, c.tokens, c.tokens, head.plan.columns, sign, scratch.u, head.plan.columns,
       rows.data, rows.stride, T(0), scratch.a, query_tile);
}

// What the reads of query head h pass back to q and, inside the chunk, to k. state: S at the chunk's start,
// null for the first chunk.
template <class T>
void query_gradients(const BackwardHead<T>& head, const typename BackwardHead<T>::Chunk& c, const T* state,
                     int64_t h) {
  const DeltaScratch<T>& scratch = head.scratch;
  const Rows<const T> q = head_rows(head.call.q, head.b, h);
  const Rows<const T> d_o = head_rows(head.call.d_o, head.b, h).from(c.range.begin);
  const Rows<T> dq = head_rows(head.call.dq, head.b, h), dk = head_rows(head.call.dk, head.b, head.kv);
  zero_rows(dq, c.range.begin, c.range.end, head.map.width);
  score_gradients(head, c, d_o, T(1));
  scratch.tile.matrix_backward(dq, dk, scratch.a, q, head.k, c.range, head.decay);
  if (state != nullptr) {
    head.load_queries(c, h);
    head.load_x(c, d_o, c.decay.read);
    std::fill_n(scratch.dut, head.map.width * head.plan.chunk, T(0));
    head.products.read_backward(scratch.dut, scratch.x, state, scratch.uq, c.tokens, 0, head.plan.features);
    head.products.add_transposed(dq.from(c.range.begin), scratch.dut, c.tokens);
  }
  DecayGradient<T> dc = decay_gradients(head.call, head.size, head.b, h);
  dc.overwrite = false;  // dc has its start
  query_rows_backward(dq, q, c.range.begin, c.range.end, dc, head.map, scratch.row);
}

// What the writes pass back to k; leaves x = -g dv for the gradient of the state. last: dS = 0
template <class T>
void key_gradients(const BackwardHead<T>& head, const typename BackwardHead<T>::Chunk& c, const T* state,
                   bool last) {
  const DeltaScratch<T>& scratch = head.scratch;
  const Rows<T> dk = head_rows(head.call.dk, head.b, head.kv);
  const Rows<T> dv_rows = head_rows(head.call.dv, head.b, head.kv).from(c.range.begin);
  const Rows<const T> dv{dv_rows.data, dv_rows.stride};
  score_gradients(head, c, dv, T(-1));
  head.clear_diagonal(c);
  scratch.tile.matrix_backward(dk, dk, scratch.a, head.k, head.k, c.range, head.decay);
  std::fill_n(scratch.dut, head.map.width * head.plan.chunk, T(0));
  const auto passed_back = [&](const T* s) {
    head.products.read_backward(scratch.dut, scratch.x, s, scratch.uk, c.tokens, 0, head.plan.features);
  };
  if (!last) {
    head.load_x(c, {scratch.u, head.plan.columns}, c.decay.write);
    passed_back(scratch.state);
  }
  head.load_x(c, dv, c.decay.read);
  scale_all(scratch.x, T(-1), c.tokens * head.plan.columns);
  if (state != nullptr) passed_back(state);
  head.products.add_transposed(dk.from(c.range.begin), scratch.dut, c.tokens);
  key_rows_backward(dk, head.k, c.range.begin, c.range.end,
                    decay_gradients(head.call, head.size, head.b, head.first_head()), head.map, scratch.row);
}

// <S, dS> at a chunk's start: the sum of dc over its tokens and all later ones, without the rounding errors
// that a sum over so many tokens would gather.
template <class T>
double later_decay_gradient(const T* s, const T* ds, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(s[j]) * static_cast<double>(ds[j]);
  return sum;
}

// state: S at the chunk's start. scratch.state: dS after the chunk, on return before it. Takes and gives the
// sum of dc over the tokens after the chunk, and from the chunk on.
template <class T>
double backward_chunk(const BackwardHead<T>& head, int64_t i, const T* state, double later) {
  const DeltaScratch<T>& scratch = head.scratch;
  const auto c = head.chunk(i);
  const bool last = i + 1 == head.plan.chunks;
  if (i == 0) state = nullptr;  // empty
  head.load_keys(c);
  head.load_u(c);
  zero_rows(head_rows(head.call.dk, head.b, head.kv), c.range.begin, c.range.end, head.map.width);
  solve_gradient(head, c, last);
  for (int64_t h = head.first_head(); h < head.end_head(); ++h) query_gradients(head, c, state, h);
  key_gradients(head, c, state, last);
  if (head.call.dlog_decay != nullptr)
    sum_decay_gradients(head.call.dlog_decay, head.call.decay, head.b, head.kv, c.range.begin, c.range.end,
                        later);
  if (i == 0) return 0;
  // dS = a dS - f(K)^T g dv + f(Q)^T g do
  head.products.update(scratch.state, c.decay.total, scratch.uk, scratch.x, c.tokens, 0, head.plan.features);
  for (int64_t h = head.first_head(); h < head.end_head(); ++h) {
    head.load_queries(c, h);
    head.load_x(c, head_rows(head.call.d_o, head.b, h).from(c.range.begin), c.decay.read);
    head.products.update(scratch.state, T(1), scratch.uq, scratch.x, c.tokens, 0, head.plan.features);
  }
  if (head.call.dlog_decay == nullptr) return 0;
  return later_decay_gradient(state, scratch.state, head.plan.state());
}

// state at the start of chunk i to that of the next
template <class T>
void advance(const BackwardHead<T>& head, T* state, int64_t i) {
  const auto c = head.chunk(i);
  head.load_keys(c);
  head.load_u(c);
  head.write(state, c);
}

template <class T>
void backward_head(const BackwardHead<T>& head) {
  const DeltaPlan& plan = head.plan;
  const DeltaScratch<T>& scratch = head.scratch;
  const int64_t n = plan.state();
  std::fill_n(scratch.kept, n, T(0));
  for (int64_t s = 1; s < plan.segments; ++s) {
    T* state = scratch.kept + s * n;
    std::copy_n(state - n, n, state);
    for (int64_t i = (s - 1) * plan.segment; i < s * plan.segment; ++i) advance(head, state, i);
  }
  std::fill_n(scratch.state, n, T(0));
  double later = 0;
  for (int64_t s = plan.segments - 1; s >= 0; --s) {
    const int64_t first = s * plan.segment, end = std::min(first + plan.segment, plan.chunks);
    std::copy_n(scratch.kept + s * n, n, scratch.states);
    for (int64_t i = first; i + 1 < end; ++i) {
      T* next = scratch.states + (i + 1 - first) * n;
      std::copy_n(next - n, n, next);
      advance(head, next, i);
    }
    for (int64_t i = end - 1; i >= first; --i)
      later = backward_chunk(head, i, scratch.states + (i - first) * n, later);
  }
}

}  // namespace

int64_t delta_attention_chunked_scratch(bool backward, const FeatureMap& map, int64_t chunk,
                                        const AttentionSize& size) {
  const DeltaPlan plan(map, chunk, size);
  return thread_count() * DeltaScratch<float>(nullptr, backward, map, plan, size).slices.used();
}

template <class T>
void delta_attention_chunked_forward(const DeltaForward<T>& call, const FeatureMap& map, int64_t chunk,
                                     const AttentionSize& size) {
  const DeltaPlan plan(map, chunk, size);
  const int64_t stride = DeltaScratch<T>(nullptr, false, map, plan, size).slices.used();
  parallel_for(size.batch * size.kv_heads, [&](int64_t unit) {
    const DeltaScratch<T> scratch(call.scratch + thread_index() * stride, false, map, plan, size);
    forward_head(ForwardHead<T>(call, map, plan, size, scratch, unit));
  });
}

template <class T>
void delta_attention_chunked_backward(const DeltaBackward<T>& call, const FeatureMap& map, int64_t chunk,
                                      const AttentionSize& size) {
  const DeltaPlan plan(map, chunk, size);
  const int64_t stride = DeltaScratch<T>(nullptr, true, map, plan, size).slices.used();
  parallel_for(size.batch * size.kv_heads, [&](int64_t unit) {
    const DeltaScratch<T> scratch(call.scratch + thread_index() * stride, true, map, plan, size);
    backward_head(BackwardHead<T>(call, map, plan, size, scratch, unit));
  });
}

#define KATA_INSTANTIATE(T)                                                                              \
  template void delta_attention_chunked_forward<T>(const DeltaForward<T>&, const FeatureMap&, int64_t,   \
                                                   const AttentionSize&);                                \
  template void delta_attention_chunked_backward<T>(const DeltaBackward<T>&, const FeatureMap&, int64_t, \
                                                    const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
