// dq: 16 or 32 queries a warp, over the keys up to them.
#pragma once

#include "kernels/common/mma_gradient.cuh"

namespace kata::cuda {

template <TileScore score, int W>
struct QueryPlan {
  static constexpr bool softmax = score == TileScore::softmax;
  static constexpr int blocks = W == 128 ? 1 : 2;  // of 16 queries, of a warp
  static constexpr int queries = 16 * blocks * mma_warps, keys = mma_tile;
  static constexpr int tile_bytes = keys * W * 2;
  // do of 32 queries stays in shared memory
  static constexpr int own_bytes = blocks == 2 ? queries * W * 2 : 0;
  static constexpr int shared = own_bytes + 2 * (2 * tile_bytes + keys * 4);
};

// What a lane keeps of its queries: row r of block m is query + 16 m + 8 r.
template <int W, int M>
struct QueryRows {
  HeldRows<W, M> q;
  std::conditional_t<M == 2, SharedRows<W, M>, HeldRows<W, M>> d_o;
  float dq[M][W / 8][4], delta[M][2], factor[M][2], fade[M][2], share[M][2];
  int query;
};

// 32 keys of a stage.
struct KeyPart {
  uint32_t k, v, fade;
  int first;
  bool masked;
  float between;
};

// x: of keys first .. on. What a query does not see becomes 0.
template <int M>
__device__ __forceinline__ void mask_keys(float (&x)[M][4][4], const GradientArguments& a, int b, int query,
                                          int first) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = query + 16 * m + 8 * r, seen = a.starts.first_seen(b, min(t, a.tokens - 1));
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = first + 8 * n + 2 * static_cast<int>(threadIdx.x % 4) + i;
          if (key > t || key < seen) x[m][n][2 * r + i] = 0;
        }
    }
}

template <int W, int M>
__device__ __forceinline__ void add_softmax_keys(QueryRows<W, M>& rows, const KeyPart& part,
                                                 const TileLane<W>& lane, const GradientArguments& a, int b) {
  float s[M][4][4], dp[M][4][4];
  uint32_t p[M][2][4];
  dots<W, 1>(dp, rows.d_o, lane, part.v, 0);
  dots<W, 1>(s, rows.q, lane, part.k, 0);
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)  // rounded as lse is, so that they cancel where one key has all the weight
        dp[m][n][i] = (dp[m][n][i] - rows.delta[m][i / 2]) *
                      fast_exp2((__fmul_rn(s[m][n][i], a.scale) - rows.factor[m][i / 2]) * mma_log2_e);
  if (part.masked) mask_keys(dp, a, b, rows.query, part.first);
  round_tile(p, dp);
  add_rows<W, 1>(rows.dq, p, lane, part.k, 0);
}

template <TileScore score, int W, int M>
__device__ __forceinline__ void add_psd_keys(QueryRows<W, M>& rows, const KeyPart& part,
                                             const TileLane<W>& lane, const GradientArguments& a, int b) {
  constexpr int groups = score_groups<score>;
  const bool fades = a.fade.given();
  float w[M][4][4];  // f dP
  uint32_t p[M][2][4];
  dots<W, 1>(w, rows.d_o, lane, part.v, 0);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 fade = fades ? column_pair(part.fade, n) : float2{0, 0};
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[m][n][i] = (w[m][n][i] - rows.delta[m][i / 2]) * rows.factor[m][i / 2];
        if (fades)
          w[m][n][i] *= fast_exp2(rows.fade[m][i / 2] + part.between - (i % 2 == 0 ? fade.x : fade.y));
      }
  }
  if (part.masked) mask_keys(w, a, b, rows.query, part.first);
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    float r[M][4][4];
    dots<W, groups>(r, rows.q, lane, part.k, g);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float d = r[m][n][i] * w[m][n][i];
          if (fades) rows.share[m][i / 2] = fmaf(r[m][n][i], d, rows.share[m][i / 2]);
          r[m][n][i] = d;
        }
    round_tile(p, r);
    add_rows<W, groups>(rows.dq, p, lane, part.k, g);
  }
}

// The lane's queries from token rows.query on.
template <int W, int M>
__device__ __forceinline__ void begin_queries(QueryRows<W, M>& rows, const GradientArguments& a,
                                              uint32_t shared, int b, int h, int pair, int first) {
  const int own = 16 * M * warp_number();
  const bf16* d_o = a.d_o.at(b, 0, h);
  rows.query = first + own + static_cast<int>(threadIdx.x) % 32 / 4;
  rows.q.load(a.q.at(b, 0, h), a.q.token, rows.query, a.tokens);
  if constexpr (M == 2) {
    copy_rows<W, 32 * mma_warps>(shared, d_o, a.d_o.token, first, a.tokens);
    rows.d_o = {shared + own * 2 * W};
  } else {
    rows.d_o.load(d_o, a.d_o.token, rows.query, a.tokens);
  }
  clear(rows.dq);
  const int64_t numbers = (b * int64_t{a.heads} + h) * a.padded;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = min(rows.query + 16 * m + 8 * r, a.tokens - 1);
      rows.delta[m][r] = a.delta[numbers + t];
      rows.factor[m][r] = a.factor[numbers + t];
      rows.fade[m][r] = a.fade.given() ? a.fade.row(pair)[t] : 0;
      rows.share[m][r] = 0;
    }
}

template <TileScore score, int W>
__global__ void __launch_bounds__(mma_threads, 2)
    queries_kernel(const __grid_constant__ GradientArguments a) {
  using P = QueryPlan<score, W>;
  constexpr int M = P::blocks;
  extern __shared__ __align__(128) uint8_t tiles[];
  const uint32_t shared = shared_address(tiles), stages = shared + P::own_bytes;
  const uint32_t fades = stages + 4 * P::tile_bytes;
  TileLane<W> lane;
  const int head = static_cast<int>(blockIdx.x) / a.tiles, b = head / a.heads, h = head % a.heads;
  const int kv = h / a.group, pair = b * a.kv_heads + kv;
  const int first = (a.tiles - 1 - static_cast<int>(blockIdx.x) % a.tiles) * P::queries;
  const int own = first + warp_number() * 16 * M, highest = min(own + 16 * M, a.tokens) - 1;
  const bf16 *k = a.k.at(b, 0, kv), *v = a.v.at(b, 0, kv);
  const auto copy = [&](int stage, int y) {
    const uint32_t to = stages + stage * 2 * P::tile_bytes;
    copy_rows<W, P::keys>(to, k, a.k.token, y, a.tokens);
    copy_rows<W, P::keys>(to + P::tile_bytes, v, a.v.token, y, a.tokens);
    if (a.fade.given() && threadIdx.x < P::keys / 4)
      copy_16(fades + stage * P::keys * 4 + 16 * threadIdx.x, a.fade.row(pair) + y + 4 * threadIdx.x, true);
  };
  const int end = min(first + P::queries, a.tokens);
  int y = a.starts.first_seen(b, first) / P::keys * P::keys, stage = 0;
  if (a.fade.given()) y = max(y, a.fade.first_left(pair, first / mma_tile) * mma_tile);
  copy(0, y);
  QueryRows<W, M> rows;
  begin_queries(rows, a, shared, b, h, pair, first);
  const int from = a.starts.first_seen(b, min(own, a.tokens - 1));
  const int all_see = a.starts.first_seen(b, min(highest, a.tokens - 1));
#pragma unroll 1
  for (; y < end; y += P::keys) {
    wait_copies();
    __syncthreads();
    if (y + P::keys < end) copy(stage ^ 1, y + P::keys);
    const uint32_t at = stages + stage * 2 * P::tile_bytes;
    const float between = a.fade.given() ? a.fade.between(pair, own, y) : 0;
#pragma unroll 1
    for (int i = 0; i < P::keys; i += mma_columns) {
      if (own >= a.tokens || y + i > highest || y + i + mma_columns <= from) continue;
      const KeyPart part = {at + i * 2 * W,
                            at + P::tile_bytes + i * 2 * W,
                            fades + (stage * P::keys + i) * 4,
                            y + i,
                            y + i + mma_columns - 1 > own || y + i < all_see,
                            between};
      lane.renew();
      if constexpr (P::softmax)
        add_softmax_keys(rows, part, lane, a, b);
      else
        add_psd_keys<score>(rows, part, lane, a, b);
    }
    stage ^= 1;
  }
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m) factor[m][0] = factor[m][1] = P::softmax ? a.scale : 2;
  write_rows(a.dq.at(b, 0, h), a.dq.token, rows.dq, factor, rows.query, a.tokens);
  if (!P::softmax && a.query_share != nullptr)
    write_share(a.query_share, rows.share, a.heads, b, h, rows.query, a.tokens);
}

}  // namespace kata::cuda
