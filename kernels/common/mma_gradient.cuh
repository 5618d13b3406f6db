// What the two backward kernels of tiles share (kernels/common/mma_attention_backward.cu).
#pragma once

#include "kernels/common/mma_attention.cuh"

namespace kata::cuda {

struct GradientArguments {
  TokenHeads<bf16> dq, dk, dv;
  TokenHeads<const bf16> d_o, q, k, v;
  const float *delta, *factor;  // [B, Hq, padded tokens], zeros in the padding: <do, o>; lse or scale^2 / D
  float *query_share, *key_share;  // [B, T, heads]: a row's part of the decay's gradient; null: not wanted
  TileStarts starts;
  TileFade fade;
  int tokens, padded, heads, kv_heads, group, tiles;
  float scale;
};

// A row's share of the decay's gradient, [B, T, heads].
template <int M>
__device__ __forceinline__ void write_share(float* to, const float (&share)[M][2], int heads, int b, int h,
                                            int row, int tokens) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = row_sum(share[m][r]);
      const int t = row + 16 * m + 8 * r;
      if (threadIdx.x % 4 == 0 && t < tokens) to[(b * int64_t{tokens} + t) * heads + h] = sum;
    }
}

}  // namespace kata::cuda
