// Causal attention in bf16 on the tensor cores of any card from compute capability 8.0 on: the quadratic
// forms of ops/softmax_attention.h and, for the psd maps, ops/linear_attention.h, in tiles that copies fetch
// ahead.
//
//   P[t,s] = exp(scale <q_t, k_s> - lse_t)                             softmax
//   P[t,s] = (sum over groups of (scale <q_t, k_s>)^2) fade[t,s] / D_t  psd; a raw read has D = 1
//   o_t = sum_s P[t,s] v_s
//   dP = <do_t, v_s> - <do_t, o_t>  (a raw read: <do_t, v_s>)
//
// Widths of 32, 64 and 128, values as wide as keys, heads on multiples of 16 bytes. Sums are fp32 in a fixed
// order, without atomics. Weights are rounded to bf16 for the products with v and do, score gradients for
// those with q and k; masses and sums of exponentials are of the unrounded weights. psd scores are kept
// without the scale, which comes in at the end: bf16 has the exponents of fp32, so that only fp32 bounds
// them, width^2 |entry|^4 times the tokens below 1e38.
#pragma once

#include "base/parallel.h"
#include "ops/decay.h"
#include "ops/token_heads.h"

namespace kata::cuda {

// psd1, psd2, psd4: of 1, 2, 4 groups.
enum class TileScore { softmax, psd1, psd2, psd4 };

struct TileForward {
  TokenHeads<bf16> o;
  float* statistic;  // [B, T, Hq]: lse, or D; null with a raw read
  TokenHeads<const bf16> q, k, v;
  LogDecay<float> decay;    // softmax: its starts alone, [B, T]
  int64_t first_query = 0;  // softmax: the token that query 0 is; k and v start at token 0
  float* scratch = nullptr;
};

struct TileBackward {
  TokenHeads<bf16> dq, dk, dv;
  TokenHeads<const bf16> d_o, q, k, v, o;
  const float* statistic;
  LogDecay<float> decay;
  float* dlog_decay = nullptr;  // [B, T, Hkv]; null: not wanted
  float* scratch = nullptr;     // on a multiple of 16 bytes, as in the forward pass
};

inline bool mma_supports(const AttentionSize& size, float scale) {
  constexpr int64_t most = int64_t{1} << 30;
  return (size.width == 32 || size.width == 64 || size.width == 128) && size.value_width == size.width &&
         scale > 0 && size.tokens < most && size.batch * size.heads * ceil_div(size.tokens, 64) < most;
}
template <class T>
bool mma_supports(const TokenHeads<T>& x) {  // copies are of 16 bytes
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % 8 == 0 && x.token % 8 == 0 &&
         x.head % 8 == 0;
}
// Whether the kernels here take a call of this size on these views.
template <class... T>
bool mma_takes(const AttentionSize& size, float scale, const TokenHeads<T>&... views) {
  return mma_supports(size, scale) && (mma_supports(views) && ...);
}

// Floats of scratch, by the shape alone; 0 for a shape that is not taken.
int64_t mma_attention_scratch(bool backward, const AttentionSize&);

template <TileScore score>
void mma_attention_forward(GpuStream, const TileForward&, float scale, const AttentionSize&);
template <TileScore score>
void mma_attention_backward(GpuStream, const TileBackward&, float scale, const AttentionSize&);

}  // namespace kata::cuda
