// Forward pass: a warp has 16 or 32 queries, whose operands, weights and sums stay in its registers; the four
// warps of a block share tiles of 64 keys and values, of which one is copied while the other is used.
//
// Floor: T (d + dv) operations a token and head at the rate of the tensor cores. A tile's operands come from
// shared memory at 128 bytes a clock: with 16 queries a warp as long as A100's products take, with 32 half of
// it.
#include "kernels/common/mma_attention.cuh"

namespace kata::cuda {

namespace {

template <TileScore score, int W>
struct Plan {
  static constexpr bool softmax = score == TileScore::softmax;
  static constexpr int blocks = W == 128 ? 1 : 2;  // of 16 queries, of a warp
  static constexpr int queries = 16 * blocks * mma_warps;
  static constexpr int keys = mma_tile;
  // Scores of a row in registers together: a softmax rescales its sums once for all of them.
  static constexpr int part = softmax ? keys : mma_columns;
  static constexpr int tile_bytes = keys * W * 2;
  static constexpr int shared = 2 * (2 * tile_bytes + keys * 4);
};

struct Arguments {
  TokenHeads<bf16> o;
  float* statistic;
  TokenHeads<const bf16> q, k, v;
  TileStarts starts;
  TileFade fade;
  int tokens, keys, first_query, heads, group, tiles;
  float scale;
  bool normalised;
};

// What a lane keeps of its queries: row r of block m is token + 16 m + 8 r.
template <TileScore score, int W>
struct Rows {
  static constexpr int M = Plan<score, W>::blocks;
  HeldRows<W, M> q;
  float out[M][W / 8][4], sum[M][2], top[M][2];
  float fade[M][2];  // the decay's sum from the tile of the query's warp on
  int seen[M][2];    // first key
  int position;      // of row 0, as a key
};

// The keys of one tile, as the warp sees them.
struct KeyTile {
  uint32_t k, v, fade;  // in shared memory
  int first;
  bool masked;    // some query does not see some key
  float between;  // decay between the tiles of the queries and the keys
};

// s: scores of keys first .. on. What is not seen becomes `hidden`.
template <class R, int M, int N>
__device__ __forceinline__ void mask(float (&s)[M][N][4], const R& rows, int first, float hidden) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + 8 * n + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
        if (key > rows.position + 16 * m + 8 * (i / 2) || key < rows.seen[m][i / 2]) s[m][n][i] = hidden;
      }
}

// Scores to weights, relative to the highest so far; what was summed before is scaled to it. Weights and
// factors are powers of two of differences to the same rounded base, so that they agree at any size.
template <class R, int M, int N>
__device__ __forceinline__ void soften(float (&s)[M][N][4], R& rows, float c) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = rows.top[m][r];
#pragma unroll
      for (int n = 0; n < N; ++n) top = fmaxf(top, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
      top = row_max(top);
      const float base = top == -INFINITY ? 0.f : __fmul_rn(top, c);  // no key seen yet
      const float shrink = fast_exp2(__fmul_rn(rows.top[m][r], c) - base);
      rows.top[m][r] = top;
      rows.sum[m][r] *= shrink;
#pragma unroll
      for (auto& block : rows.out[m]) {
        block[2 * r] *= shrink;
        block[2 * r + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) s[m][n][i] = fast_exp2(fmaf(s[m][n][i], c, -base));
    }
}

// s *= the decay between query and key; fade: sums of the keys in shared memory.
template <class R, int M, int N>
__device__ __forceinline__ void fade_scores(float (&s)[M][N][4], const R& rows, uint32_t fade,
                                            float between) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 key = column_pair(fade, n);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[m][n][i] *= fast_exp2(rows.fade[m][i / 2] + between - (i % 2 == 0 ? key.x : key.y));
  }
}

// Adds the keys of one tile to the rows.
template <TileScore score, int W>
__device__ __forceinline__ void attend(Rows<score, W>& rows, const KeyTile& tile, const TileLane<W>& lane,
                                       bool fades, float c) {
  using P = Plan<score, W>;
  constexpr int M = P::blocks, N = P::part / 8;
#pragma unroll(W == 128 ? 2 : 1)  // narrower ones, with 32 queries a warp, would run out of registers
  for (int part = 0; part < P::keys; part += P::part) {
    float s[M][N][4];
    const uint32_t k = tile.k + part * 2 * W, v = tile.v + part * 2 * W;
    if constexpr (P::softmax) {
      dots<W, 1>(s, rows.q, lane, k, 0);
      if (tile.masked) mask(s, rows, tile.first + part, -INFINITY);
      soften(s, rows, c);
    } else {
      clear(s);
#pragma unroll
      for (int g = 0; g < score_groups<score>; ++g) {
        float dot[M][N][4];
        dots<W, score_groups<score>>(dot, rows.q, lane, k, g);
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
          for (int n = 0; n < N; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) s[m][n][i] = fmaf(dot[m][n][i], dot[m][n][i], s[m][n][i]);
      }
      if (fades) fade_scores(s, rows, tile.fade + part * 4, tile.between);
      if (tile.masked) mask(s, rows, tile.first + part, 0);
    }
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        rows.sum[m][0] += s[m][n][0] + s[m][n][1];
        rows.sum[m][1] += s[m][n][2] + s[m][n][3];
      }
    uint32_t p[M][N / 2][4];
    round_tile(p, s);
    add_rows<W, 1>(rows.out, p, lane, v, 0);
  }
}

// Divides by the sums and writes outputs and statistics. row: the lane's first query.
template <TileScore score, int W>
__device__ __forceinline__ void finish(const Rows<score, W>& rows, const Arguments& a, int b, int h,
                                       int row) {
  constexpr int M = Plan<score, W>::blocks;
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = row_sum(rows.sum[m][r]), top = rows.top[m][r];
      float statistic = sum * a.scale * a.scale;
      if constexpr (Plan<score, W>::softmax) {
        // The weights are relative to the rounded base; lse is not.
        const float c = a.scale * mma_log2_e, rounding = fmaf(top, c, -__fmul_rn(top, c));
        statistic = fmaf(top, a.scale, logf(sum) - rounding * 0.69314718056f);
        factor[m][r] = 1 / sum;
      } else {
        factor[m][r] = !a.normalised ? a.scale * a.scale : statistic <= 1e-20f ? 0 : 1 / sum;
      }
      const int t = row + 16 * m + 8 * r;
      if (a.statistic != nullptr && threadIdx.x % 4 == 0 && t < a.tokens)
        a.statistic[(b * int64_t{a.tokens} + t) * a.heads + h] = statistic;
    }
  write_rows(a.o.at(b, 0, h), a.o.token, rows.out, factor, row, a.tokens);
}

// The lane's queries from token `row` on. pair: of the batch row and key head.
template <TileScore score, int W>
__device__ __forceinline__ void begin_rows(Rows<score, W>& rows, const Arguments& a, int b, int h, int pair,
                                           int row) {
  rows.q.load(a.q.at(b, 0, h), a.q.token, row, a.tokens);
  rows.position = a.first_query + row;
  clear(rows.out);
#pragma unroll
  for (int m = 0; m < Plan<score, W>::blocks; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int t = min(row + 16 * m + 8 * r, a.tokens - 1);
      rows.sum[m][r] = 0;
      rows.top[m][r] = -INFINITY;
      rows.seen[m][r] = a.starts.first_seen(b, t);
      rows.fade[m][r] = a.fade.given() ? a.fade.row(pair)[t] : 0;
    }
}

template <TileScore score, int W>
__global__ void __launch_bounds__(mma_threads, 2) forward_kernel(const __grid_constant__ Arguments a) {
  using P = Plan<score, W>;
  extern __shared__ __align__(128) uint8_t tiles[];
  const uint32_t shared = shared_address(tiles);
  const TileLane<W> lane;
  const int head = static_cast<int>(blockIdx.x) / a.tiles, b = head / a.heads, h = head % a.heads;
  const int kv = h / a.group, pair = b * (a.heads / a.group) + kv;
  // The longest rows first.
  const int first = (a.tiles - 1 - static_cast<int>(blockIdx.x) % a.tiles) * P::queries;
  const int own = first + warp_number() * 16 * P::blocks, lowest = a.first_query + own;
  const int highest = lowest + 16 * P::blocks - 1;
  const bf16 *k = a.k.at(b, 0, kv), *v = a.v.at(b, 0, kv);

  const auto copy = [&](int stage, int y) {
    const uint32_t to = shared + stage * 2 * P::tile_bytes;
    copy_rows<W, P::keys>(to, k, a.k.token, y, a.keys);
    copy_rows<W, P::keys>(to + P::tile_bytes, v, a.v.token, y, a.keys);
    if (a.fade.given() && threadIdx.x < P::keys / 4)
      copy_16(shared + 4 * P::tile_bytes + stage * P::keys * 4 + 16 * threadIdx.x,
              a.fade.row(pair) + y + 4 * threadIdx.x, true);
  };
  const int end = min(a.first_query + first + P::queries, a.keys);
  int y = a.starts.first_seen(b, first) / P::keys * P::keys, stage = 0;
  if (a.fade.given()) y = max(y, a.fade.first_left(pair, first / mma_tile) * mma_tile);
  copy(0, y);
  Rows<score, W> rows;
  begin_rows(rows, a, b, h, pair, own + static_cast<int>(threadIdx.x) % 32 / 4);
  // Of the warp's queries.
  const int from = a.starts.first_seen(b, min(own, a.tokens - 1));
  const int all_see = a.starts.first_seen(b, min(own + 16 * P::blocks, a.tokens) - 1);
#pragma unroll 1
  for (; y < end; y += P::keys) {
    wait_copies();
    __syncthreads();
    if (y + P::keys < end) copy(stage ^ 1, y + P::keys);
    if (own < a.tokens && y <= highest && y + P::keys > from) {
      const uint32_t at = shared + stage * 2 * P::tile_bytes;
      KeyTile tile = {at,
                      at + P::tile_bytes,
                      shared + 4 * P::tile_bytes + stage * P::keys * 4,
                      y,
                      y + P::keys - 1 > lowest || y < all_see,
                      0};
      if (a.fade.given()) tile.between = a.fade.between(pair, own, y);
      attend(rows, tile, lane, a.fade.given(), a.scale * mma_log2_e);
    }
    stage ^= 1;
  }
  finish(rows, a, b, h, own + static_cast<int>(threadIdx.x) % 32 / 4);
}

}  // namespace

template <TileScore score>
void mma_attention_forward(GpuStream stream, const TileForward& x, float scale, const AttentionSize& size) {
  if (size.batch * size.tokens * size.heads == 0) return;
  KATA_CHECK(mma_takes(size, scale, x.o, x.q, x.k, x.v));
  KATA_CHECK(size.tokens + x.first_query < (int64_t{1} << 30));
  KATA_CHECK(score != TileScore::softmax ? x.first_query == 0 : x.decay.log == nullptr);
  KATA_CHECK(reinterpret_cast<uintptr_t>(x.scratch) % 16 == 0);
  with_mma_width(size.width, [&]<int W>() {
    using P = Plan<score, W>;
    const int64_t tiles = ceil_div(size.tokens, P::queries);
    const Arguments a = {x.o,
                         x.statistic,
                         x.q,
                         x.k,
                         x.v,
                         {x.decay.starts.data, x.decay.starts.time, static_cast<int>(x.first_query)},
                         make_fade(stream, x.scratch, x.decay, size),
                         static_cast<int>(size.tokens),
                         static_cast<int>(size.tokens + x.first_query),
                         static_cast<int>(x.first_query),
                         static_cast<int>(size.heads),
                         static_cast<int>(size.group()),
                         static_cast<int>(tiles),
                         scale,
                         x.statistic != nullptr};
    launch_tiles(forward_kernel<score, W>, size.batch * size.heads * tiles, P::shared, stream, a);
  });
}

#define KATA_INSTANCE(score) \
  template void mma_attention_forward<score>(GpuStream, const TileForward&, float, const AttentionSize&)
KATA_INSTANCE(TileScore::softmax);
KATA_INSTANCE(TileScore::psd1);
KATA_INSTANCE(TileScore::psd2);
KATA_INSTANCE(TileScore::psd4);
#undef KATA_INSTANCE

}  // namespace kata::cuda
