// dk and dv: 16 keys a warp, scores transposed (keys are rows), over the queries from them on.
#pragma once

#include "kernels/common/mma_gradient.cuh"

namespace kata::cuda {

template <TileScore score, int W>
struct KeyPlan {
  static constexpr bool softmax = score == TileScore::softmax;
  static constexpr bool shares_rows = W == 128;  // own keys and values stay in shared memory
  static constexpr int keys = 16 * mma_warps;
  static constexpr int queries = W == 128 ? 32 : 64;  // of a stage
  static constexpr int own_bytes = shares_rows ? keys * W * 2 : 0;
  static constexpr int tile_bytes = queries * W * 2;
  // q, do, and a number each of delta, factor, fade and first key a query
  static constexpr int stage_bytes = 2 * tile_bytes + 4 * queries * 4;
  static constexpr int shared = 2 * own_bytes + 2 * stage_bytes;
  using Own = std::conditional_t<shares_rows, SharedRows<W, 1>, HeldRows<W, 1>>;
};

// What a lane keeps of its keys: rows key and key + 8.
template <TileScore score, int W>
struct KeyRows {
  typename KeyPlan<score, W>::Own k, v;
  float dk[1][W / 8][4], dv[1][W / 8][4], share[2];
  float fade[2];
  int key;
};

// 32 queries of a stage: addresses in shared memory, and the first one.
struct QueryPart {
  uint32_t q, d_o, delta, factor, fade, seen;
  int first;
  bool masked;
  float between;  // decay between the tiles of the queries and the keys
};

// The weights' factors f: scale^2 / D of the query and the decay, and 0 where it does not see the key.
template <class R>
__device__ __forceinline__ void key_factors(float (&f)[1][4][4], const R& rows, const QueryPart& part,
                                            bool fades) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 factor = column_pair(part.factor, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) f[0][n][i] = i % 2 == 0 ? factor.x : factor.y;
    if (!fades) continue;
    const float2 fade = column_pair(part.fade, n);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      f[0][n][i] *= fast_exp2((i % 2 == 0 ? fade.x : fade.y) + part.between - rows.fade[i / 2]);
  }
}
// x: of the part's queries. What they do not see becomes 0.
template <class R>
__device__ __forceinline__ void mask_queries(float (&x)[1][4][4], const R& rows, const QueryPart& part) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int2 seen = column_ids(part.seen, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = part.first + 8 * n + 2 * static_cast<int>(threadIdx.x % 4) + i % 2;
      const int key = rows.key + 8 * (i / 2);
      if (key > query || key < (i % 2 == 0 ? seen.x : seen.y)) x[0][n][i] = 0;
    }
  }
}
// dp -= delta, by column
__device__ __forceinline__ void less_delta(float (&dp)[1][4][4], const QueryPart& part) {
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 delta = column_pair(part.delta, n);
#pragma unroll
    for (int i = 0; i < 4; ++i) dp[0][n][i] -= i % 2 == 0 ? delta.x : delta.y;
  }
}

template <int W>
__device__ __forceinline__ void add_queries(KeyRows<TileScore::softmax, W>& rows, const QueryPart& part,
                                            const TileLane<W>& lane, float scale, bool) {
  float s[1][4][4], dp[1][4][4];
  uint32_t p[1][2][4];
  dots<W, 1>(s, rows.k, lane, part.q, 0);
  dots<W, 1>(dp, rows.v, lane, part.d_o, 0);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 lse = column_pair(part.factor, n);
#pragma unroll
    for (int i = 0; i < 4; ++i)  // rounded as lse is, so that they cancel where one key has all the weight
      s[0][n][i] = fast_exp2((__fmul_rn(s[0][n][i], scale) - (i % 2 == 0 ? lse.x : lse.y)) * mma_log2_e);
  }
  if (part.masked) mask_queries(s, rows, part);
  round_tile(p, s);
  add_rows<W, 1>(rows.dv, p, lane, part.d_o, 0);
  less_delta(dp, part);
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) dp[0][n][i] *= s[0][n][i];
  round_tile(p, dp);
  add_rows<W, 1>(rows.dk, p, lane, part.q, 0);
}

template <TileScore score, int W>
__device__ __forceinline__ void add_queries(KeyRows<score, W>& rows, const QueryPart& part,
                                            const TileLane<W>& lane, float, bool fades) {
  constexpr int groups = score_groups<score>;
  float f[1][4][4], dp[1][4][4], sum[1][4][4];
  uint32_t p[1][2][4];
  dots<W, 1>(dp, rows.v, lane, part.d_o, 0);
  less_delta(dp, part);
  key_factors(f, rows, part, fades);
  if (part.masked) mask_queries(f, rows, part);
  clear(sum);
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) dp[0][n][i] *= f[0][n][i];
#pragma unroll
  for (int g = 0; g < groups; ++g) {
    float r[1][4][4];
    dots<W, groups>(r, rows.k, lane, part.q, g);
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum[0][n][i] = fmaf(r[0][n][i], r[0][n][i], sum[0][n][i]);
        const float d = r[0][n][i] * dp[0][n][i];
        if (fades) rows.share[i / 2] = fmaf(r[0][n][i], d, rows.share[i / 2]);
        r[0][n][i] = d;
      }
    round_tile(p, r);
    add_rows<W, groups>(rows.dk, p, lane, part.q, g);
  }
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) f[0][n][i] *= sum[0][n][i];
  round_tile(p, f);
  add_rows<W, 1>(rows.dv, p, lane, part.d_o, 0);
}

// Stages of queries, from the tile of these keys on, of which some see some of them.
__device__ __forceinline__ int stages_seeing(const GradientArguments& a, int b, int pair, int first, int keys,
                                             int queries) {
  int count = (a.tokens - first + queries - 1) / queries;
  if (a.fade.given())
    count = min(count, (a.fade.first_faded(pair, first / mma_tile) * mma_tile - first) / queries);
  if (a.starts.data == nullptr) return count;
  int seeing = 0;
  for (int n = 0; n < count; n += mma_threads) {
    const int mine = n + static_cast<int>(threadIdx.x);
    const bool sees = mine < count && a.starts.first_seen(b, first + mine * queries) < first + keys;
    const int here = __syncthreads_count(sees);
    seeing += here;
    if (here < mma_threads) break;
  }
  return seeing;
}

// The copies of one stage: `queries` queries of head h from y on, and their numbers.
template <TileScore score, int W>
__device__ __forceinline__ void copy_queries(const GradientArguments& a, uint32_t to, int b, int h, int pair,
                                             int y) {
  using P = KeyPlan<score, W>;
  copy_rows<W, P::queries>(to, a.q.at(b, 0, h), a.q.token, y, a.tokens);
  copy_rows<W, P::queries>(to + P::tile_bytes, a.d_o.at(b, 0, h), a.d_o.token, y, a.tokens);
  const int thread = static_cast<int>(threadIdx.x), which = thread / (P::queries / 4);
  const int i = thread % (P::queries / 4) * 4;
  const uint32_t numbers = to + 2 * P::tile_bytes + which * P::queries * 4 + 4 * i;
  const int64_t row = (b * int64_t{a.heads} + h) * a.padded + y + i;
  if (which == 0) copy_16(numbers, a.delta + row, true);
  if (which == 1) copy_16(numbers, a.factor + row, true);
  if (which == 2 && a.fade.given()) copy_16(numbers, a.fade.row(pair) + y + i, true);
  if (a.starts.data != nullptr && thread < P::queries)
    copy_4(to + 2 * P::tile_bytes + 3 * P::queries * 4 + 4 * thread,
           a.starts.data + b * a.starts.time + min(y + thread, a.tokens - 1), true);
}

// The keys and values that the warp owns, and their sums at 0.
template <TileScore score, int W>
__device__ __forceinline__ void begin_keys(KeyRows<score, W>& rows, const GradientArguments& a,
                                           uint32_t shared, int b, int kv, int first) {
  using P = KeyPlan<score, W>;
  const bf16 *k = a.k.at(b, 0, kv), *v = a.v.at(b, 0, kv);
  const int warp = warp_number();
  rows.key = first + 16 * warp + static_cast<int>(threadIdx.x) % 32 / 4;
  if constexpr (P::shares_rows) {
    copy_rows<W, P::keys>(shared, k, a.k.token, first, a.tokens);
    copy_rows<W, P::keys>(shared + P::own_bytes, v, a.v.token, first, a.tokens);
    rows.k = {shared + warp * 32 * W};
    rows.v = {shared + P::own_bytes + warp * 32 * W};
  } else {
    rows.k.load(k, a.k.token, rows.key, a.tokens);
    rows.v.load(v, a.v.token, rows.key, a.tokens);
  }
  clear(rows.dk);
  clear(rows.dv);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.share[r] = 0;
    rows.fade[r] = a.fade.given() ? a.fade.row(b * a.kv_heads + kv)[min(rows.key + 8 * r, a.tokens - 1)] : 0;
  }
}

template <TileScore score, int W>
__global__ void __launch_bounds__(mma_threads, 2) keys_kernel(const __grid_constant__ GradientArguments a) {
  using P = KeyPlan<score, W>;
  extern __shared__ __align__(128) uint8_t tiles[];
  const uint32_t shared = shared_address(tiles), stages = shared + 2 * P::own_bytes;
  TileLane<W> lane;
  const int pair = static_cast<int>(blockIdx.x) / a.tiles, b = pair / a.kv_heads, kv = pair % a.kv_heads;
  const int first = static_cast<int>(blockIdx.x) % a.tiles * P::keys, own = first + 16 * warp_number();
  KeyRows<score, W> rows;
  begin_keys(rows, a, shared, b, kv, first);
  if (a.starts.data == nullptr && threadIdx.x < P::queries)  // every query sees token 0
    for (int stage = 0; stage < 2; ++stage)
      reinterpret_cast<int*>(tiles + 2 * P::own_bytes + stage * P::stage_bytes + 2 * P::tile_bytes +
                             3 * P::queries * 4)[threadIdx.x] = 0;
  const int count = stages_seeing(a, b, pair, first, P::keys, P::queries);
  copy_queries<score, W>(a, stages, b, kv * a.group, pair, first);
  int h = kv * a.group, n = 0;
#pragma unroll 1
  for (int step = 0; step < count * a.group; ++step) {
    wait_copies();
    __syncthreads();
    const int y = first + n * P::queries;
    if (++n == count) {
      n = 0;
      ++h;
    }
    const uint32_t at = stages + step % 2 * P::stage_bytes, numbers = at + 2 * P::tile_bytes;
    if (step + 1 < count * a.group)
      copy_queries<score, W>(a, stages + (step + 1) % 2 * P::stage_bytes, b, h, pair, first + n * P::queries);
    const float between = a.fade.given() ? a.fade.between(pair, y, first) : 0;
#pragma unroll 1
    for (int i = 0; i < P::queries; i += mma_columns) {
      const int last = min(i + mma_columns, a.tokens - y) - 1;  // the part's last query, less y
      if (own >= a.tokens || last < i || y + last < own) continue;
      QueryPart part = {at + i * 2 * W,
                        at + P::tile_bytes + i * 2 * W,
                        numbers + 4 * i,
                        numbers + 4 * (P::queries + i),
                        numbers + 4 * (2 * P::queries + i),
                        numbers + 4 * (3 * P::queries + i),
                        y + i,
                        y + i < own + 15,
                        between};
      if (a.starts.data != nullptr) {
        if (a.starts.first_seen(b, y + i) > own + 15) continue;
        part.masked = part.masked || a.starts.first_seen(b, y + last) > own;
      }
      lane.renew();
      add_queries(rows, part, lane, a.scale, a.fade.given());
    }
  }
  const float scale = P::softmax ? a.scale : 2;
  write_rows(a.dk.at(b, 0, kv), a.dk.token, rows.dk, {{scale, scale}}, rows.key, a.tokens);
  write_rows(a.dv.at(b, 0, kv), a.dv.token, rows.dv, {{1, 1}}, rows.key, a.tokens);
  if (!P::softmax && a.key_share != nullptr)
    write_share<1>(a.key_share, {{rows.share[0], rows.share[1]}}, a.kv_heads, b, kv, rows.key, a.tokens);
}

}  // namespace kata::cuda
