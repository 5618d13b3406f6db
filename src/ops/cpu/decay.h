// The decay of a state between tokens: a learned factor, the start of a document (factor 0), or none.
//
// Between tokens s < t stands exp(sum of log a over s + 1 .. t). Every sum here runs from token to token of
// one tile or chunk; none is the difference of two longer ones, and no exponent is positive (MATH 3).
#pragma once

#include <algorithm>
#include <limits>

#include "ops/cpu/causal_tiles.h"
#include "ops/cpu/vector_math.h"
#include "ops/decay.h"
#include "ops/feature_map.h"

namespace kata::cpu {

// exp of a sum of logs, exactly 0 where it is below the normal numbers.
template <class T>
T decay_exp(T log_decay) {
  const T value = fast_exp(log_decay);
  return log_decay < T(-87) ? T(0) : value;
}

// log a of one (batch row, state head).
template <class T>
class HeadDecay {
 public:
  HeadDecay() = default;
  HeadDecay(const LogDecay<T>& decay, int64_t b, int64_t h) : decay_(decay), b_(b), h_(h) {}

  bool any() const { return decay_.any(); }
  T at(int64_t t) const {
    if (decay_.starts.is_start(b_, t)) return -std::numeric_limits<T>::infinity();
    return decay_.log == nullptr ? T(0) : decay_.log[(b_ * decay_.tokens + t) * decay_.heads + h_];
  }
  // The first token of this call that t sees.
  int64_t first_seen(int64_t t) const { return std::max<int64_t>(0, decay_.starts.at(b_, t)); }

 private:
  LogDecay<T> decay_;
  int64_t b_ = 0, h_ = 0;
};

// The factors of one chunk of tokens [begin, end): between the chunk's start and each token's read, between
// each token's write and the chunk's end, and over the whole chunk.
template <class T>
struct ChunkDecay {
  T *read = nullptr, *write = nullptr;  // [tokens]; null where nothing decays
  T total = 1;

  // r, w: room for [end - begin]
  static ChunkDecay of(const HeadDecay<T>& decay, int64_t begin, int64_t end, T* r, T* w) {
    if (!decay.any()) return {};
    T sum = 0;
    for (int64_t t = begin; t < end; ++t) r[t - begin] = sum += decay.at(t);
    const T total = decay_exp(sum);
    sum = 0;
    for (int64_t t = end - 1; t >= begin; --t) {
      w[t - begin] = sum;
      sum += decay.at(t);
    }
#pragma omp simd
    for (int64_t t = 0; t < end - begin; ++t) {
      r[t] = decay_exp(r[t]);
      w[t] = decay_exp(w[t]);
    }
    return {r, w, total};
  }
};

// Rows [rows, columns] times a factor each; nothing where factor is null.
template <class T>
void scale_rows(T* x, const T* factor, int64_t rows, int64_t columns) {
  if (factor == nullptr) return;
  for (int64_t t = 0; t < rows; ++t)
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) x[t * columns + j] *= factor[t];
}
template <class T>
void scale_all(T* x, T factor, int64_t n) {
  if (factor == 1) return;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] *= factor;
}

// The decay factors of a tile of scores, laid out as the scores are.
template <class T>
class DecayTile {
 public:
  // key_tokens: keys that one tile may have before its first query.
  DecayTile(Slices<T>& scratch, int64_t key_tokens)
      : keys_(scratch.take(key_tokens)),
        queries_(scratch.take(query_tile)),
        logs_(scratch.take(query_tile)),
        tile_(scratch.take(key_block * query_tile)) {}

  // Queries [begin, end), keys [first_key, end).
  void load(const HeadDecay<T>& decay, int64_t begin, int64_t end, int64_t first_key) const {
    T sum = 0;
    for (int64_t t = begin; t < end; ++t) {
      logs_[t - begin] = decay.at(t);
      queries_[t - begin] = sum += logs_[t - begin];
    }
#pragma omp simd
    for (int64_t t = 0; t < end - begin; ++t) queries_[t] = decay_exp(queries_[t]);
    sum = 0;
    for (int64_t s = begin - 1; s >= first_key; --s) {
      keys_[s - first_key] = sum;
      sum += decay.at(s);
    }
#pragma omp simd
    for (int64_t s = 0; s < begin - first_key; ++s) keys_[s] = decay_exp(keys_[s]);
  }

  // The factors of a block, [keys][query_tile]; undefined where a query does not see the key.
  const T* block(const KeyBlock& block, int64_t first_key) const {
    if (block.diagonal) {
      for (int64_t i = 0; i < block.keys; ++i) {
        const T* logs = logs_ + block.query;
        T *row = tile_ + i * query_tile, sum = 0;
        row[i] = 0;
        for (int64_t t = i + 1; t < block.queries; ++t) row[t] = sum += logs[t];
#pragma omp simd
        for (int64_t t = i; t < block.queries; ++t) row[t] = decay_exp(row[t]);
        std::fill_n(row, i, T(0));
      }
      return tile_;
    }
    for (int64_t i = 0; i < block.keys; ++i) {
      const T key = keys_[block.key - first_key + i];
      T* row = tile_ + i * query_tile;
#pragma omp simd
      for (int64_t t = 0; t < block.queries; ++t) row[t] = key * queries_[t];
    }
    return tile_;
  }

 private:
  T* keys_;             // [key_tokens]: from each key to the token before the first query
  T *queries_, *logs_;  // [query_tile]: from there to each query; log a of the queries
  T* tile_;
};

// <u, du> / order for a lifted row and its gradient: sum over s of A[t,s] dA[t,s] for a query, and the same
// over t for a key, since a score is homogeneous of that order in both.
template <class T>
T score_share(const T* u, const T* du, const FeatureMap& map) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < map.width; ++j) sum += u[j] * du[j];
  return map.first_order() ? sum : sum / 2;
}

// In place, tokens [begin, end) of a state head: dc_t to dlog a_t, the sum of dc over t and the later tokens
// of its document; `later`: that sum over the tokens after end. What comes before a document's first token is
// dropped, so its log a has no gradient.
template <class T>
void sum_decay_gradients(T* dlog, const LogDecay<T>& decay, int64_t b, int64_t h, int64_t begin, int64_t end,
                         double later) {
  double sum = later;
  for (int64_t t = end - 1; t >= begin; --t) {
    T& value = dlog[(b * decay.tokens + t) * decay.heads + h];
    sum += static_cast<double>(value);
    const bool first = t == 0 || decay.starts.is_start(b, t);
    value = first ? T(0) : static_cast<T>(sum);
    if (first) sum = 0;
  }
}

}  // namespace kata::cpu
