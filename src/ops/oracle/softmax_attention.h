// Causal softmax attention, one query at a time (ops/softmax_attention.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"
#include "ops/token_heads.h"

namespace kata::oracle {

template <class S>
struct SoftmaxResult {
  std::vector<S> o;    // [B, T, Hq, dv]
  std::vector<S> lse;  // [B, T, Hq]
};

// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], contiguous.
template <class S>
SoftmaxResult<S> softmax_attention(const AttentionSize& size, const std::vector<S>& q,
                                   const std::vector<S>& k, const std::vector<S>& v, double scale) {
  using std::exp;
  const size_t batch = size_t(size.batch), tokens = size_t(size.tokens), heads = size_t(size.heads);
  const size_t kv_heads = size_t(size.kv_heads), d = size_t(size.width), dv = size_t(size.value_width);
  SoftmaxResult<S> result;
  for (size_t b = 0; b < batch; ++b)
    for (size_t t = 0; t < tokens; ++t)
      for (size_t h = 0; h < heads; ++h) {
        const auto key_row = [&](size_t s) { return (b * tokens + s) * kv_heads + h / (heads / kv_heads); };
        std::vector<S> scores(t + 1), o(dv);
        for (size_t s = 0; s <= t; ++s) {
          for (size_t j = 0; j < d; ++j)
            scores[s] += q[((b * tokens + t) * heads + h) * d + j] * k[key_row(s) * d + j];
          scores[s] *= scale;
        }
        const S lse = log_sum_exp(scores.data(), scores.size());
        for (size_t s = 0; s <= t; ++s)
          for (size_t j = 0; j < dv; ++j) o[j] += exp(scores[s] - lse) * v[key_row(s) * dv + j];
        result.lse.push_back(lse);
        result.o.insert(result.o.end(), o.begin(), o.end());
      }
  return result;
}

}  // namespace kata::oracle
