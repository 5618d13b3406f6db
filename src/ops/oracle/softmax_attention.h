// Causal softmax attention, one query at a time (ops/softmax_attention.h has the formula).
#pragma once

#include <cstdint>

#include "ops/oracle/scalar.h"
#include "ops/token_heads.h"

namespace kata::oracle {

template <class S>
struct SoftmaxResult {
  std::vector<S> o;    // [B, T, Hq, dv]
  std::vector<S> lse;  // [B, T, Hq]
};

// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], contiguous. starts [B,T], or empty: one document a row. The
// first `first_query` tokens may be keys only: q then holds the others, and so does the result.
template <class S>
SoftmaxResult<S> softmax_attention(const AttentionSize& size, const std::vector<S>& q,
                                   const std::vector<S>& k, const std::vector<S>& v, double scale,
                                   const std::vector<int32_t>& starts = {}, size_t first_query = 0) {
  using std::exp;
  const size_t batch = size_t(size.batch), tokens = size_t(size.tokens), heads = size_t(size.heads);
  const size_t kv_heads = size_t(size.kv_heads), d = size_t(size.width), dv = size_t(size.value_width);
  SoftmaxResult<S> result;
  for (size_t b = 0; b < batch; ++b)
    for (size_t t = first_query; t < tokens; ++t)
      for (size_t h = 0; h < heads; ++h) {
        const size_t query_row = (b * (tokens - first_query) + t - first_query) * heads + h;
        const size_t start = starts.empty() ? 0 : size_t(std::max(starts[b * tokens + t], 0));
        const auto key_row = [&](size_t s) { return (b * tokens + s) * kv_heads + h / (heads / kv_heads); };
        std::vector<S> scores, o(dv);
        for (size_t s = start; s <= t; ++s) {
          S score = 0;
          for (size_t j = 0; j < d; ++j) score += q[query_row * d + j] * k[key_row(s) * d + j];
          scores.push_back(score * scale);
        }
        const S lse = log_sum_exp(scores.data(), scores.size());
        for (size_t s = start; s <= t; ++s)
          for (size_t j = 0; j < dv; ++j) o[j] += exp(scores[s - start] - lse) * v[key_row(s) * dv + j];
        result.lse.push_back(lse);
        result.o.insert(result.o.end(), o.begin(), o.end());
      }
  return result;
}

}  // namespace kata::oracle
