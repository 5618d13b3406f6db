// Scores of linear attention on tiles of q and k, without features, and their gradients.
//
// A map's score is a rule: q and k are cut into equal column parts, r_ij = sigma <q_i, k_j>, and the score is
// r_11 (first-order maps, on lifted rows) or the sum of r_ij^2 over equal parts (psd) or over all pairs
// (psd_sum). Hermitian and quaternionic have one part, the whole row, and a copy of q for each unit e:
// <q, k e> = <q e*, k>. Decay multiplies a score. The quadratic form and the inside of a chunk are both calls
// of this tile.
#pragma once

#include "ops/cpu/decay.h"
#include "ops/cpu/feature_block.h"
#include "ops/cpu/gemm.h"
#include "ops/linear_attention.h"

namespace kata::cpu {

struct ScoreRule {
  int64_t parts = 1;
  int64_t part = 0;        // columns of a part
  bool all_pairs = false;  // every part of q with every part of k, else equal parts
  bool square = false;
  double sigma = 1;
  int64_t copies = 1;  // of q, side by side

  int64_t pairs() const { return all_pairs ? parts * parts : parts * copies; }
  int64_t q_column(int64_t pair) const { return (all_pairs ? pair / parts : pair) * part; }
  int64_t k_column(int64_t pair) const { return pair % parts * part; }
};

inline ScoreRule score_rule(const FeatureMap& map) {
  switch (map.kind) {
    case MapKind::identity:
    case MapKind::orthant:
    case MapKind::lorentz:
      return {1, map.width, false, false, map.sigma()};
    case MapKind::psd:
      return {map.groups, map.part(), false, true, map.sigma()};
    case MapKind::psd_sum:
      return {map.groups, map.part(), true, true, map.sigma()};
    case MapKind::hermitian:
    case MapKind::quaternionic:
      return {1, map.width, false, true, map.sigma(), map.parts()};
  }
  return {};
}

// o_t = numerator / mass, or 0 at or below the floor; NaN stays NaN.
template <class T>
void normalise_row(T* o, T mass, int64_t n) {
  if (mass <= static_cast<T>(mass_floor)) {
    std::fill_n(o, n, T(0));
    return;
  }
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) o[j] /= mass;
}

// One row of [do / D, -<o, do> / D] ([do] with a raw read): the gradient of a numerator and of its mass.
template <class T>
void read_gradient_row(T* g, const T* d_o, const T* o, const T* mass, int64_t n) {
  if (mass == nullptr) {
    std::copy_n(d_o, n, g);
    return;
  }
  if (*mass <= static_cast<T>(mass_floor)) {
    std::fill_n(g, n + 1, T(0));
    return;
  }
  T e = 0;
#pragma omp simd reduction(+ : e)
  for (int64_t j = 0; j < n; ++j) e += o[j] * d_o[j];
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) g[j] = d_o[j] / *mass;
  g[n] = -e / *mass;
}

// Where the decay's gradient of one state head is gathered: element t is at data + t * stride; null without
// one.
template <class T>
struct DecayGradient {
  T* data = nullptr;
  int64_t stride = 0;
  bool overwrite = false;  // by the first query head of the state head
};
// Call: the arguments of a backward pass; h: a query head.
template <class Call>
auto decay_gradients(const Call& call, const AttentionSize& size, int64_t b, int64_t h)
    -> DecayGradient<std::remove_pointer_t<decltype(call.dlog_decay)>> {
  if (call.dlog_decay == nullptr) return {};
  return {call.dlog_decay + b * size.tokens * size.kv_heads + h / size.group(), size.kv_heads,
          h % size.group() == 0};
}

// Rows [begin, end) of q's gradient, complete on the lift: their share of dc, then the adjoint of the lift.
template <class T>
void query_rows_backward(const Rows<T>& dq, const Rows<const T>& q, int64_t begin, int64_t end,
                         const DecayGradient<T>& dc, const FeatureMap& map, T* row) {
  if (dc.data != nullptr)
    for (int64_t t = begin; t < end; ++t) {
      const T share = score_share(lift_rows(row, q.from(t), 1, map).data, dq.at(t), map);
      T& value = dc.data[t * dc.stride];
      value = dc.overwrite ? share : value + share;
    }
  lift_rows_backward(dq, q, begin, end, map, row);
}
// Likewise of k's, after the queries'.
template <class T>
void key_rows_backward(const Rows<T>& dk, const Rows<const T>& k, int64_t begin, int64_t end,
                       const DecayGradient<T>& dc, const FeatureMap& map, T* row) {
  if (dc.data != nullptr)
    for (int64_t t = begin; t < end; ++t)
      dc.data[t * dc.stride] -= score_share(lift_rows(row, k.from(t), 1, map).data, dk.at(t), map);
  lift_rows_backward(dk, k, begin, end, map, row);
}
template <class Call>
void finish_decay_gradients(const Call& call, const AttentionSize& size) {
  if (call.dlog_decay == nullptr) return;
  parallel_for(size.batch * size.kv_heads, [&](int64_t unit) {
    sum_decay_gradients(call.dlog_decay, call.decay, unit / size.kv_heads, unit % size.kv_heads, 0,
                        size.tokens, 0);
  });
}

// Queries [begin, end), at most query_tile of them, against keys [first_key, end) of one head.
struct TileRange {
  int64_t begin, end, first_key;
};

template <class T>
class ScoreTile {
 public:
  // decayed_keys: with a decay, the keys that a tile may have before its first query.
  ScoreTile(Slices<T>& scratch, const FeatureMap& map, int64_t value_width, int64_t decayed_keys)
      : map_(map), rule_(score_rule(map)), value_width_(value_width), decay_(scratch, decayed_keys) {
    const int64_t q_width = rule_.copies * map.width;
    a_ = scratch.take(key_block * query_tile);
    r_ = scratch.take(key_block * query_tile);
    da_ = scratch.take(key_block * query_tile);
    qt_ = scratch.take(q_width * query_tile);
    gt_ = scratch.take((value_width + 1) * query_tile);
    lifted_q_ = scratch.take(has_lift(map) ? query_tile * q_width : 0);
    dcopies_ = scratch.take(rule_.copies > 1 ? query_tile * q_width : 0);
    lifted_k_ = scratch.take(has_lift(map) ? key_block * map.width : 0);
  }

  // o_t += sum_s A[t,s] v_s and mass[t - begin] += sum_s A[t,s]; mass may be null.
  void forward(const Rows<T>& o, T* mass, const Rows<const T>& q, const Rows<const T>& k,
               const Rows<const T>& v, const TileRange& range, const HeadDecay<T>& decay) const {
    load_queries(q, range, decay);
    for_each_key_block(range.begin, range.end, range.first_key, [&](const KeyBlock& block) {
      scores(a_, lift_rows(lifted_k_, k.from(block.key), block.keys, map_), block);
      fade(a_, block, range, decay);
      if (mass != nullptr) add_masses(mass + block.query, block);
      gemm(Op::transpose, Op::none, block.queries, value_width_, block.keys, T(1), a_, query_tile,
           v.at(block.key), v.stride, T(1), o.at(range.begin + block.query), o.stride);
    });
  }

  // Adds to dq (rows of the lift), dk (likewise) and dv. g: rows of read_gradient_row for [begin, end), one
  // column wider than v where `normalised`.
  void backward(const Rows<T>& dq, const Rows<T>& dk, const Rows<T>& dv, const Rows<const T>& q,
                const Rows<const T>& k, const Rows<const T>& v, const Rows<const T>& g, bool normalised,
                const TileRange& range, const HeadDecay<T>& decay) const {
    const Rows<const T> uq = load_queries(q, range, decay);
    const Rows<T> duq = query_gradients(dq.from(range.begin), range);
    transpose_rows(gt_, query_tile, g, range.end - range.begin, value_width_ + (normalised ? 1 : 0), T(1));
    for_each_key_block(range.begin, range.end, range.first_key, [&](const KeyBlock& block) {
      const Rows<const T> uk = lift_rows(lifted_k_, k.from(block.key), block.keys, map_);
      gemm(Op::none, Op::none, block.keys, block.queries, value_width_, T(1), v.at(block.key), v.stride,
           gt_ + block.query, query_tile, T(0), da_, query_tile);
      if (normalised) add_mass_gradient(block);
      fade(da_, block, range, decay);
      score_gradients(duq.from(block.query), dk.from(block.key), a_, da_, uq.from(block.query), uk, block);
      fade(a_, block, range, decay);
      gemm(Op::none, Op::none, block.keys, value_width_, block.queries, T(1), a_, query_tile,
           g.at(block.query), g.stride, T(1), dv.at(block.key), dv.stride);
    });
    fold_query_gradients(dq.from(range.begin), range);
  }

  // The scores of a tile whose keys are its queries' tokens, decayed: a [keys][query_tile], 0 above the
  // diagonal.
  void matrix(T* a, const Rows<const T>& q, const Rows<const T>& k, const TileRange& range,
              const HeadDecay<T>& decay) const {
    load_queries(q, range, decay);
    for_each_key_block(range.begin, range.end, range.begin, [&](const KeyBlock& block) {
      T* row = a + block.query * query_tile;
      scores(row + block.query, lift_rows(lifted_k_, k.from(block.key), block.keys, map_), block);
      fade(row + block.query, block, range, decay);
      for (int64_t s = 0; s < block.keys; ++s) std::fill_n(row + s * query_tile, block.query, T(0));
    });
  }
  // Adds to dq and dk (rows of the lift) what the gradient of that matrix passes back; da is overwritten.
  void matrix_backward(const Rows<T>& dq, const Rows<T>& dk, T* da, const Rows<const T>& q,
                       const Rows<const T>& k, const TileRange& range, const HeadDecay<T>& decay) const {
    const Rows<const T> uq = load_queries(q, range, decay);
    const Rows<T> duq = query_gradients(dq.from(range.begin), range);
    for_each_key_block(range.begin, range.end, range.begin, [&](const KeyBlock& block) {
      T* d = da + block.query * query_tile + block.query;
      fade(d, block, range, decay);
      score_gradients(duq.from(block.query), dk.from(block.key), a_, d, uq.from(block.query),
                      lift_rows(lifted_k_, k.from(block.key), block.keys, map_), block);
    });
    fold_query_gradients(dq.from(range.begin), range);
  }

 private:
  // The lifted queries of a tile, copies side by side, also transposed into qt; and their decay.
  Rows<const T> load_queries(const Rows<const T>& q, const TileRange& range,
                             const HeadDecay<T>& decay) const {
    const int64_t m = range.end - range.begin;
    if (decay.any()) decay_.load(decay, range.begin, range.end, range.first_key);
    Rows<const T> uq = q.from(range.begin);
    if (rule_.copies > 1)
      uq = copy_queries(uq, m);
    else
      uq = lift_rows(lifted_q_, uq, m, map_);
    transpose_rows(qt_, query_tile, uq, m, rule_.copies * map_.width, T(1));
    return uq;
  }

  // Copy c of q has <copy, k> = <q, k e_c>.
  Rows<const T> copy_queries(const Rows<const T>& q, int64_t m) const {
    const int64_t width = rule_.copies * map_.width, part = map_.part();
    for (int64_t t = 0; t < m; ++t) {
      T* row = lifted_q_ + t * width;
      lift_row(row, q.at(t), map_);
      for (int64_t c = 1; c < rule_.copies; ++c)
        for (int64_t p = 0; p < map_.parts(); ++p) {
          const SignedPart to = times_unit(c, p);
          T* copy = row + c * map_.width + to.from * part;
          for (int64_t j = 0; j < part; ++j) copy[j] = static_cast<T>(to.sign) * row[p * part + j];
        }
    }
    return {lifted_q_, width};
  }
  // Where the gradients of the queries and their copies are summed: dq itself where there is one copy.
  Rows<T> query_gradients(const Rows<T>& dq, const TileRange& range) const {
    if (rule_.copies == 1) return dq;
    const int64_t width = rule_.copies * map_.width;
    std::fill_n(dcopies_, (range.end - range.begin) * width, T(0));
    return {dcopies_, width};
  }
  void fold_query_gradients(const Rows<T>& dq, const TileRange& range) const {
    if (rule_.copies == 1) return;
    const int64_t part = map_.part();
    for (int64_t t = 0; t < range.end - range.begin; ++t)
      for (int64_t c = 0; c < rule_.copies; ++c)
        for (int64_t p = 0; p < map_.parts(); ++p) {
          const SignedPart to = times_unit(c, p);
          const T* copy = dcopies_ + (t * rule_.copies + c) * map_.width + to.from * part;
          T* row = dq.at(t) + p * part;
          for (int64_t j = 0; j < part; ++j) row[j] += static_cast<T>(to.sign) * copy[j];
        }
  }

  // x [keys][query_tile] *= the decay; 0 where a query does not see the key.
  void fade(T* x, const KeyBlock& block, const TileRange& range, const HeadDecay<T>& decay) const {
    if (decay.any()) {
      const T* factor = decay_.block(block, range.first_key);
      for (int64_t s = 0; s < block.keys; ++s) {
        T* row = x + s * query_tile;
        const T* f = factor + s * query_tile;
#pragma omp simd
        for (int64_t t = 0; t < block.queries; ++t) row[t] *= f[t];
      }
    }
    zero_hidden(x, block);
  }

  // r [keys][query_tile] = sigma <k_j, q_i> of a pair of parts
  void dot(T* r, const Rows<const T>& k, const KeyBlock& block, int64_t pair) const {
    gemm(Op::none, Op::none, block.keys, block.queries, rule_.part, static_cast<T>(rule_.sigma),
         k.data + rule_.k_column(pair), k.stride, qt_ + rule_.q_column(pair) * query_tile + block.query,
         query_tile, T(0), r, query_tile);
  }

  // a = the scores without decay
  void scores(T* a, const Rows<const T>& k, const KeyBlock& block) const {
    dot(a, k, block, 0);
    if (!rule_.square) return;
    for (int64_t s = 0; s < block.keys; ++s) {
      T* row = a + s * query_tile;
#pragma omp simd
      for (int64_t t = 0; t < block.queries; ++t) row[t] *= row[t];
    }
    for (int64_t pair = 1; pair < rule_.pairs(); ++pair) {
      dot(r_, k, block, pair);
      for (int64_t s = 0; s < block.keys; ++s) {
        T* row = a + s * query_tile;
        const T* r = r_ + s * query_tile;
#pragma omp simd
        for (int64_t t = 0; t < block.queries; ++t) row[t] += r[t] * r[t];
      }
    }
  }

  // a = the scores without decay, and dA -> dq, dk: dr_ij = 2 r_ij dA (dr = dA without squares). dq, q: rows
  // of the block's queries.
  void score_gradients(const Rows<T>& dq, const Rows<T>& dk, T* a, const T* da, const Rows<const T>& q,
                       const Rows<const T>& k, const KeyBlock& block) const {
    if (!rule_.square) {
      dot(a, k, block, 0);
      return dot_gradients(dq, dk, da, q, k, block, 0);
    }
    for (int64_t pair = 0; pair < rule_.pairs(); ++pair) {
      dot(r_, k, block, pair);
      for (int64_t s = 0; s < block.keys; ++s) {
        T *sum = a + s * query_tile, *r = r_ + s * query_tile;
        const T* d = da + s * query_tile;
        if (pair == 0) std::fill_n(sum, block.queries, T(0));
#pragma omp simd
        for (int64_t t = 0; t < block.queries; ++t) {
          sum[t] += r[t] * r[t];
          r[t] *= 2 * d[t];
        }
      }
      dot_gradients(dq, dk, r_, q, k, block, pair);
    }
  }

  // dq_i += sigma dr k_j, dk_j += sigma dr^T q_i
  void dot_gradients(const Rows<T>& dq, const Rows<T>& dk, const T* dr, const Rows<const T>& q,
                     const Rows<const T>& k, const KeyBlock& block, int64_t pair) const {
    const int64_t i = rule_.q_column(pair), j = rule_.k_column(pair);
    const T sigma = static_cast<T>(rule_.sigma);
    gemm(Op::transpose, Op::none, block.queries, rule_.part, block.keys, sigma, dr, query_tile, k.data + j,
         k.stride, T(1), dq.data + i, dq.stride);
    gemm(Op::none, Op::none, block.keys, rule_.part, block.queries, sigma, dr, query_tile, q.data + i,
         q.stride, T(1), dk.data + j, dk.stride);
  }

  // mass_t += sum_s A[t,s]
  void add_masses(T* mass, const KeyBlock& block) const {
    for (int64_t s = 0; s < block.keys; ++s) {
      const T* a = a_ + s * query_tile;
#pragma omp simd
      for (int64_t t = 0; t < block.queries; ++t) mass[t] += a[t];
    }
  }

  // dA[t,s] -= w_t
  void add_mass_gradient(const KeyBlock& block) const {
    const T* w = gt_ + value_width_ * query_tile + block.query;
    for (int64_t s = 0; s < block.keys; ++s) {
      T* da = da_ + s * query_tile;
#pragma omp simd
      for (int64_t t = 0; t < block.queries; ++t) da[t] += w[t];
    }
  }

  FeatureMap map_;
  ScoreRule rule_;
  int64_t value_width_;
  DecayTile<T> decay_;
  T *a_, *r_, *da_;  // [key_block][query_tile]: A, r_ij or its gradient, dA, all transposed
  T *qt_, *gt_;      // [copies * width][query_tile], [dv + 1][query_tile]
  T *lifted_q_, *dcopies_, *lifted_k_;
};

}  // namespace kata::cpu
