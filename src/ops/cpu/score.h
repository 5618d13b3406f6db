// Scores of linear attention on tiles of q and k, without features, and their gradients.
//
// A map's score is a rule: q and k are cut into equal column parts, r_ij = sigma <q_i, k_j>, and the score is
// r_11 (first-order maps, on lifted rows) or the sum of r_ij^2 over equal parts (psd) or over all pairs
// (psd_sum). The quadratic form and the inside of a chunk are both calls of this tile.
#pragma once

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

  int64_t pairs() const { return all_pairs ? parts * parts : parts; }
  int64_t q_column(int64_t pair) const { return (all_pairs ? pair / parts : pair) * part; }
  int64_t k_column(int64_t pair) const { return pair % parts * part; }
};

inline ScoreRule score_rule(const FeatureMap& map) {
  switch (map.kind) {
    case MapKind::identity:
    case MapKind::orthant:
    case MapKind::lorentz:
      return {1, map.width, false, false, 1};
    case MapKind::psd:
      return {map.groups, map.part(), false, true, map.sigma()};
    case MapKind::psd_sum:
      return {map.groups, map.part(), true, true, map.sigma()};
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

// Queries [begin, end), at most query_tile of them, against keys [first_key, end) of one head.
struct TileRange {
  int64_t begin, end, first_key;
};

template <class T>
class ScoreTile {
 public:
  ScoreTile(Slices<T>& scratch, const FeatureMap& map, int64_t value_width)
      : map_(map), rule_(score_rule(map)), value_width_(value_width) {
    a_ = scratch.take(key_block * query_tile);
    r_ = scratch.take(key_block * query_tile);
    da_ = scratch.take(key_block * query_tile);
    qt_ = scratch.take(map.width * query_tile);
    gt_ = scratch.take((value_width + 1) * query_tile);
    lifted_q_ = scratch.take(has_lift(map) ? query_tile * map.width : 0);
    lifted_k_ = scratch.take(has_lift(map) ? key_block * map.width : 0);
  }

  // o_t += sum_s A[t,s] v_s and mass[t - begin] += sum_s A[t,s]; mass may be null.
  void forward(const Rows<T>& o, T* mass, const Rows<const T>& q, const Rows<const T>& k,
               const Rows<const T>& v, const TileRange& range) const {
    load_queries(q, range);
    for_each_key_block(range.begin, range.end, range.first_key, [&](const KeyBlock& block) {
      scores(lift_rows(lifted_k_, k.from(block.key), block.keys, map_), block);
      zero_hidden(a_, block);
      if (mass != nullptr) add_masses(mass + block.query, block);
      gemm(Op::transpose, Op::none, block.queries, value_width_, block.keys, T(1), a_, query_tile,
           v.at(block.key), v.stride, T(1), o.at(range.begin + block.query), o.stride);
    });
  }

  // Adds to dq (rows of the lift), dk (likewise) and dv. g: rows of read_gradient_row for [begin, end), one
  // column wider than v where `normalised`.
  void backward(const Rows<T>& dq, const Rows<T>& dk, const Rows<T>& dv, const Rows<const T>& q,
                const Rows<const T>& k, const Rows<const T>& v, const Rows<const T>& g, bool normalised,
                const TileRange& range) const {
    const Rows<const T> uq = load_queries(q, range);
    transpose_rows(gt_, query_tile, g, range.end - range.begin, value_width_ + (normalised ? 1 : 0), T(1));
    for_each_key_block(range.begin, range.end, range.first_key, [&](const KeyBlock& block) {
      const Rows<const T> uk = lift_rows(lifted_k_, k.from(block.key), block.keys, map_);
      gemm(Op::none, Op::none, block.keys, block.queries, value_width_, T(1), v.at(block.key), v.stride,
           gt_ + block.query, query_tile, T(0), da_, query_tile);
      if (normalised) add_mass_gradient(block);
      zero_hidden(da_, block);
      score_gradients(dq.from(range.begin + block.query), dk.from(block.key), uq.from(block.query), uk,
                      block);
      zero_hidden(a_, block);
      gemm(Op::none, Op::none, block.keys, value_width_, block.queries, T(1), a_, query_tile,
           g.at(block.query), g.stride, T(1), dv.at(block.key), dv.stride);
    });
  }

 private:
  // The lifted queries of a tile, also transposed into qt.
  Rows<const T> load_queries(const Rows<const T>& q, const TileRange& range) const {
    const int64_t m = range.end - range.begin;
    const Rows<const T> uq = lift_rows(lifted_q_, q.from(range.begin), m, map_);
    transpose_rows(qt_, query_tile, uq, m, map_.width, T(1));
    return uq;
  }

  // r [keys][query_tile] = sigma <k_j, q_i> of a pair of parts
  void dot(T* r, const Rows<const T>& k, const KeyBlock& block, int64_t pair) const {
    gemm(Op::none, Op::none, block.keys, block.queries, rule_.part, static_cast<T>(rule_.sigma),
         k.data + rule_.k_column(pair), k.stride, qt_ + rule_.q_column(pair) * query_tile + block.query,
         query_tile, T(0), r, query_tile);
  }

  // a = A
  void scores(const Rows<const T>& k, const KeyBlock& block) const {
    dot(a_, k, block, 0);
    if (!rule_.square) return;
    for (int64_t s = 0; s < block.keys; ++s) {
      T* a = a_ + s * query_tile;
#pragma omp simd
      for (int64_t t = 0; t < block.queries; ++t) a[t] *= a[t];
    }
    for (int64_t pair = 1; pair < rule_.pairs(); ++pair) {
      dot(r_, k, block, pair);
      for (int64_t s = 0; s < block.keys; ++s) {
        T* a = a_ + s * query_tile;
        const T* r = r_ + s * query_tile;
#pragma omp simd
        for (int64_t t = 0; t < block.queries; ++t) a[t] += r[t] * r[t];
      }
    }
  }

  // a = A, and dA -> dq, dk: dr_ij = 2 r_ij dA (dr = dA without squares). dq, q: rows of the block's queries.
  void score_gradients(const Rows<T>& dq, const Rows<T>& dk, const Rows<const T>& q, const Rows<const T>& k,
                       const KeyBlock& block) const {
    if (!rule_.square) {
      dot(a_, k, block, 0);
      return dot_gradients(dq, dk, da_, q, k, block, 0);
    }
    for (int64_t pair = 0; pair < rule_.pairs(); ++pair) {
      dot(r_, k, block, pair);
      for (int64_t s = 0; s < block.keys; ++s) {
        T *a = a_ + s * query_tile, *r = r_ + s * query_tile;
        const T* da = da_ + s * query_tile;
        if (pair == 0) std::fill_n(a, block.queries, T(0));
#pragma omp simd
        for (int64_t t = 0; t < block.queries; ++t) {
          a[t] += r[t] * r[t];
          r[t] *= 2 * da[t];
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
  T *a_, *r_, *da_;  // [key_block][query_tile]: A, r_ij or its gradient, dA, all transposed
  T *qt_, *gt_;      // [width][query_tile], [dv + 1][query_tile]
  T *lifted_q_, *lifted_k_;
};

}  // namespace kata::cpu
