// The recurrence itself, token by token with explicit features: what every form of every mixer must equal
// (MATH 2, 3, 4).
//
//   add:    S_t = a_t S_{t-1} + f(k_t) v_t^T, z_t = a_t z_{t-1} + f(k_t)
//   delta:  S_t = a_t (I - b_t f(k_t) f(k_t)^T) S_{t-1} + b_t f(k_t) v_t^T
//   o_t = S_t^T f(q_t) (/ D_t, D_t = z_t . f(q_t))
//
// a_t = 0 at the first token of a document.
#pragma once

#include "ops/linear_attention.h"
#include "ops/oracle/feature_map.h"

namespace kata::oracle {

template <class S>
struct RecurrenceResult {
  std::vector<S> o;       // [B, T, Hq, dv]
  std::vector<S> mass;    // [B, T, Hq]; empty with a raw read
  std::vector<S> errors;  // delta: v_t - S^T f(k_t) before the update, [B, T, Hkv, dv]
  std::vector<S> state;   // [B, Hkv, n, dv + 1], or dv columns with a raw read
};

// What is not there is empty.
template <class S>
struct RecurrenceGates {
  std::vector<S> log_decay;     // [B, T, Hkv]
  std::vector<S> beta;          // [B, T, Hkv]; given: the delta rule
  std::vector<int32_t> starts;  // [B, T]
};

// q [B,T,Hq,d], k [B,T,Hkv,d], v [B,T,Hkv,dv], contiguous; state_in as RecurrenceResult::state, or empty.
template <class S>
RecurrenceResult<S> recurrence(const FeatureMap& map, Read read, const AttentionSize& size,
                               const std::vector<S>& q, const std::vector<S>& k, const std::vector<S>& v,
                               const std::vector<S>& state_in = {}, const RecurrenceGates<S>& gates = {}) {
  using std::exp;
  const size_t batch = size_t(size.batch), tokens = size_t(size.tokens), heads = size_t(size.heads);
  const size_t kv_heads = size_t(size.kv_heads), d = size_t(size.width), dv = size_t(size.value_width);
  const size_t columns = read == Read::normalised ? dv + 1 : dv;
  const size_t n = features(map, q.data()).size();
  RecurrenceResult<S> result;
  result.o.resize(batch * tokens * heads * dv);
  result.mass.resize(read == Read::normalised ? batch * tokens * heads : 0);
  result.errors.resize(gates.beta.empty() ? 0 : batch * tokens * kv_heads * dv);
  result.state = state_in;
  result.state.resize(batch * kv_heads * n * columns);
  for (size_t b = 0; b < batch; ++b)
    for (size_t t = 0; t < tokens; ++t) {
      const bool first = !gates.starts.empty() && gates.starts[b * tokens + t] == int32_t(t);
      for (size_t g = 0; g < kv_heads; ++g) {
        const size_t row = (b * tokens + t) * kv_heads + g;
        const std::vector<S> f = features(map, &k[row * d]);
        S* state = &result.state[(b * kv_heads + g) * n * columns];
        const S keep = first ? S(0) : gates.log_decay.empty() ? S(1) : exp(gates.log_decay[row]);
        for (size_t i = 0; i < n * columns; ++i) state[i] = first ? S(0) : keep * state[i];
        for (size_t j = 0; j < columns; ++j) {
          S write = j < dv ? v[row * dv + j] : S(1);
          if (!gates.beta.empty()) {
            for (size_t p = 0; p < n; ++p) write -= f[p] * state[p * columns + j];
            result.errors[row * dv + j] = write;
            write *= gates.beta[row];
          }
          for (size_t p = 0; p < n; ++p) state[p * columns + j] += f[p] * write;
        }
      }
      for (size_t h = 0; h < heads; ++h) {
        const std::vector<S> f = features(map, &q[((b * tokens + t) * heads + h) * d]);
        const S* state = &result.state[(b * kv_heads + h / (heads / kv_heads)) * n * columns];
        std::vector<S> out(dv + 1);
        for (size_t p = 0; p < n; ++p)
          for (size_t j = 0; j < columns; ++j) out[j] += f[p] * state[p * columns + j];
        S* o = &result.o[((b * tokens + t) * heads + h) * dv];
        if (read == Read::normalised) result.mass[(b * tokens + t) * heads + h] = out[dv];
        for (size_t j = 0; j < dv; ++j)
          o[j] = read == Read::raw ? out[j] : real(out[dv]) <= 1e-20 ? S(0) : out[j] / out[dv];
      }
    }
  return result;
}

}  // namespace kata::oracle
