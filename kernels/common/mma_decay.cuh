// The gradient of a decay from what rows of queries and of keys add to it.
#pragma once

#include "kernels/common/launch.h"
#include "ops/documents.h"
#include "ops/token_heads.h"

namespace kata::cuda {

// dlog a_t = the sum of dc over t and the later tokens of its document; dc is the queries' shares [B, T, Hq]
// less the key's [B, T, Hkv]. A warp has a (batch row, key head) and goes against time, 32 tokens at once. A
// token that begins a document has 0.
static __global__ void decay_shares_kernel(float* dlog, const float* query_share, const float* key_share,
                                           Starts starts, AttentionSize size) {
  const int64_t b = blockIdx.x / size.kv_heads, kv = blockIdx.x % size.kv_heads, group = size.group();
  const int lane = static_cast<int>(threadIdx.x);
  double passed = 0;         // the sum from the tile after this one on
  int64_t passed_start = 0;  // of its first token
  for (int64_t first = (size.tokens - 1) / 32 * 32; first >= 0; first -= 32) {
    const int64_t t = first + lane, row = b * size.tokens + t;
    const bool inside = t < size.tokens, last = first + 32 >= size.tokens;
    const int start = inside ? static_cast<int>(starts.at(b, t)) : 0;
    double sum = 0;
    if (inside) {
      double queries = 0;
      for (int64_t i = 0; i < group; ++i) queries += query_share[row * size.heads + kv * group + i];
      sum = queries - static_cast<double>(key_share[row * size.kv_heads + kv]);
    }
    for (int step = 1; step < 32; step *= 2) {
      const double right = __shfl_down_sync(0xFFFFFFFFu, sum, step);
      const int right_start = __shfl_down_sync(0xFFFFFFFFu, start, step);
      if (lane + step < 32 && t + step < size.tokens && right_start == start) sum += right;
    }
    if (inside && !last && start == passed_start) sum += passed;
    if (inside)
      dlog[row * size.kv_heads + kv] = t == 0 || starts.is_start(b, t) ? 0.f : static_cast<float>(sum);
    passed = __shfl_sync(0xFFFFFFFFu, sum, 0);
    passed_start = __shfl_sync(0xFFFFFFFFu, start, 0);
  }
}

inline void decay_gradient(cudaStream_t stream, float* dlog, const float* query_share, const float* key_share,
                           const Starts& starts, const AttentionSize& size) {
  decay_shares_kernel<<<grid(size.batch * size.kv_heads), 32, 0, stream>>>(dlog, query_share, key_share,
                                                                           starts, size);
  check_launch("mma_attention decay gradient");
}

}  // namespace kata::cuda
