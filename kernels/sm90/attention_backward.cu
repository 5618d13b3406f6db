// Backward pass in two kernels, each of which owns what it writes: no atomics, sums in a fixed order. With
//
//   g = do / mass, delta = <do, o> / mass  (psd)        g = do, delta = <do, o>  (softmax)
//   dA = <g, v> - delta,  dS = s dA  (psd; the factor 2 scale^2 is left to the end),  P dA  (softmax)
//
// keys kernel: 64 keys a warpgroup, scores transposed (keys are rows), over the queries from them on:
//   dv += A^T g, dk += dS^T q. All their A operands come from registers.
// queries kernel: 64 queries a warpgroup, over the keys up to them: dq += dS k.
//
// Floor: 7 products (7.5 with four groups, half of whose scores are made twice) of T / 2 x 128 operations a
// token and head, at the tensor units' rate.
#include "kernels/common/elements.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/sm90/attention.h"
#include "kernels/sm90/pipeline.cuh"

namespace kata::cuda::sm90 {

namespace {

constexpr int tile_rows = 64, tile_bytes = tile_rows * 128;

template <Score score>
struct Plan {
  static constexpr bool softmax = score == Score::softmax;
  static constexpr int groups = score == Score::psd4 ? 4 : score == Score::psd2 ? 2 : 1;
  static constexpr int live = groups == 1 ? 1 : 2;  // groups whose scores are in registers together
  static constexpr int steps = 4 / groups;          // products of 16 columns in one group's score
  static constexpr int part = 32 / groups;          // accumulators of one group's columns of dq or dk
};

// --- per row ---

struct Statistics {
  float *delta, *lse;  // [B, Hq, padded tokens], zeros in the padding; lse in powers of two, softmax only
  bf16* g;             // [B, T, Hq, 64], psd only
};

// Eight lanes a row.
template <Score score>
__global__ void rows_kernel(Statistics to, AttentionBackward x, int64_t rows, int64_t padded, int64_t tokens,
                            int64_t heads) {
  const int64_t row = (blockIdx.x * int64_t{256} + threadIdx.x) / 8;
  if (row >= rows) return;  // whole warps or none: rows is a multiple of 64
  const int lane = static_cast<int>(threadIdx.x % 8);
  const int64_t token = row % padded, head = row / padded % heads, batch = row / padded / heads;
  float d_o[8] = {}, o[8] = {}, statistic = 0, product = 0;
  if (token < tokens) {
    load<8>(d_o, place(x.d_o, batch, token, head) + 8 * lane);
    load<8>(o, place(x.o, batch, token, head) + 8 * lane);
    statistic = x.statistic[(batch * tokens + token) * heads + head];
  }
  const float inverse = Plan<score>::softmax ? 1 : statistic > 1e-20f ? 1 / statistic : 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {  // delta of the rounded g: its error has to cancel in dA as g itself does
    d_o[i] = to_float(from_float<bf16>(d_o[i] * inverse));
    product += d_o[i] * o[i];
  }
  product = lane_sum<8>(product);
  if (lane == 0) {
    to.delta[row] = product;
    if constexpr (Plan<score>::softmax) to.lse[row] = statistic * log2_e;
  }
  if (!Plan<score>::softmax && token < tokens)
    store<8>(to.g + ((batch * tokens + token) * heads + head) * 64 + 8 * lane, d_o);
}

// --- what both kernels do with a tile of scores ---

struct Arguments {
  AttentionBackward x;
  View<const bf16> g;
  const float *delta, *lse;
  int tokens, padded, heads, kv_heads, group;
  float scale;
  WorkOrder order;
};

// s[i] = the scores of groups first .. first + live - 1, A from registers.
template <Score score>
__device__ __forceinline__ void scores(float (&s)[Plan<score>::live][32], const uint32_t (&a)[4][4],
                                       uint64_t tile, int first) {
  using P = Plan<score>;
#pragma unroll
  for (int g = 0; g < P::live; ++g)
#pragma unroll
    for (int k = 0; k < P::steps; ++k) {
      const int at = (first + g) * P::steps + k;
      multiply<0>(s[g], a[at], tile + at * columns_16, k > 0);
    }
}
__device__ __forceinline__ void product_64(float (&c)[32], const uint32_t (&a)[4][4], uint64_t tile) {
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply<0>(c, a[k], tile + k * columns_16, k > 0);
}

// Sums into the columns of one group: sum[64, 64 / groups] += p[64, 64] tile[64, those columns].
template <int N>
__device__ __forceinline__ void add_group(float (&sum)[N], const uint32_t (&p)[4][4], uint64_t tile,
                                          int group) {
  const uint64_t columns = tile + group * (N * 2 / 8);  // 2 N columns of 2 bytes, in units of 16 bytes
#pragma unroll
  for (int k = 0; k < 4; ++k) multiply<1>(sum, p[k], columns + k * rows_16, 1);
}

// --- keys kernel ---

constexpr int key_warpgroups = 2, key_threads = 128 * (key_warpgroups + 1), key_rows = 64 * key_warpgroups;
// A stage: 64 queries, their g, and 64 numbers each of delta and lse.
using KeyRing = Ring<8, 2 * tile_bytes + 1024>;

template <int G>
struct KeySums {
  float dk[G][32 / G], dv[1][32];
};

// Scores of queries before their keys become zero. `ahead`: first key of the thread less first query of the
// tile's first column.
template <int L>
__device__ __forceinline__ void mask_transposed(float (&s)[L][32], int ahead) {
  const int lane = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 32; ++i)
    if (i / 4 * 8 + i % 2 + lane < ahead + i / 2 % 2 * 8) {
#pragma unroll
      for (int g = 0; g < L; ++g) s[g][i] = 0;
    }
}

// Columns 8 j + 2 (lane % 4) and the next of 64 numbers in shared memory.
__device__ __forceinline__ float2 column_pair(uint32_t numbers, int j) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "r"(numbers + 32 * j + 8 * (threadIdx.x % 4)));
  return x;
}

// s = s (dp - delta), delta by column.
__device__ __forceinline__ void gradient_transposed(float (&s)[32], const float (&dp)[32], uint32_t deltas) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 delta = column_pair(deltas, j);
#pragma unroll
    for (int r = 0; r < 4; r += 2) {
      s[4 * j + r] *= dp[4 * j + r] - delta.x;
      s[4 * j + r + 1] *= dp[4 * j + r + 1] - delta.y;
    }
  }
}

// One tile of 64 queries.
template <Score score>
__device__ __forceinline__ void add_queries(KeySums<Plan<score>::groups>& sums, const uint32_t (&k)[4][4],
                                            const uint32_t (&v)[4][4], uint32_t stage, bool masked, int ahead,
                                            float c) {
  using P = Plan<score>;
  const uint64_t q_tile = tile_operand(stage), g_tile = tile_operand(stage + tile_bytes);
  const uint32_t deltas = stage + 2 * tile_bytes, lses = deltas + 256;
  float s[P::live][32], dp[32], a[32];
  uint32_t p[4][4], ds[P::live][4][4];
  fence_products();
  scores<score>(s, k, q_tile, 0);
  commit_products();
  product_64(dp, v, g_tile);
  commit_products();
  wait_products<1>(s);
  if constexpr (P::softmax) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 lse = column_pair(lses, j);
#pragma unroll
      for (int r = 0; r < 4; r += 2) {
        s[0][4 * j + r] = power_of_two(fmaf(s[0][4 * j + r], c, -lse.x));
        s[0][4 * j + r + 1] = power_of_two(fmaf(s[0][4 * j + r + 1], c, -lse.y));
      }
    }
  }
  if (masked) mask_transposed(s, ahead);
  const auto square = [&](bool more) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      float sum = more ? a[i] : 0;
#pragma unroll
      for (int g = 0; g < P::live; ++g) sum = fmaf(s[g][i], s[g][i], sum);
      a[i] = sum;
    }
  };
  const auto add_keys = [&](int first) {
#pragma unroll
    for (int g = 0; g < P::live; ++g) {
      gradient_transposed(s[g], dp, deltas);
      round_tile(ds[g], s[g]);
    }
    fence_products();
#pragma unroll
    for (int g = 0; g < P::live; ++g) add_group(sums.dk[first + g], ds[g], q_tile, first + g);
    commit_products();
  };
  if constexpr (!P::softmax) square(false);
  if constexpr (P::groups > P::live) {
    fence_products();
    scores<score>(s, k, q_tile, P::live);
    commit_products();
    wait_products<0>(s);
    if (masked) mask_transposed(s, ahead);
    square(true);
  }
  if constexpr (P::softmax)
    round_tile(p, s[0]);
  else
    round_tile(p, a);
  fence_products();
  add_group(sums.dv[0], p, g_tile, 0);
  commit_products();
  wait_products<1>(dp);
  add_keys(P::groups - P::live);
  wait_products<0>();
  if constexpr (P::groups > P::live) {
    fence_products();
    scores<score>(s, k, q_tile, 0);
    commit_products();
    wait_products<0>(s);
    if (masked) mask_transposed(s, ahead);
    add_keys(0);
    wait_products<0>();
  }
}

// Copies of the keys kernel: per piece of work the query heads of its key head, each from the diagonal on.
__device__ __forceinline__ void feed_queries(KeyRing& ring, const CUtensorMap& q_map,
                                             const CUtensorMap& g_map, const Arguments& a, bool with_lse) {
  const int tiles = a.padded / tile_rows;
  for (int work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int head, rank;
    a.order.at(work, head, rank);
    const int batch = head / a.kv_heads, kv_head = head % a.kv_heads;
    for (int h = kv_head * a.group; h < (kv_head + 1) * a.group; ++h)
      for (int n = rank * key_warpgroups; n < tiles; ++n) {
        const int64_t row = (batch * int64_t{a.heads} + h) * a.padded + n * tile_rows;
        ring.wait_empty();
        const uint32_t full = ring.full(ring.stage), to = ring.data();
        barrier_expect(full, 2 * tile_bytes + (with_lse ? 512 : 256));
        copy_tile(to, q_map, n * tile_rows, h, batch, full);
        copy_tile(to + tile_bytes, g_map, n * tile_rows, h, batch, full);
        copy_bytes(to + 2 * tile_bytes, a.delta + row, 256, full);
        if (with_lse) copy_bytes(to + 2 * tile_bytes + 256, a.lse + row, 256, full);
        ring.advance();
      }
  }
}

template <Score score>
__global__ __launch_bounds__(key_threads, 1) void keys_kernel(const __grid_constant__ CUtensorMap q_map,
                                                              const __grid_constant__ CUtensorMap g_map,
                                                              const __grid_constant__ Arguments a) {
  using P = Plan<score>;
  extern __shared__ uint8_t shared[];
  KeyRing ring(shared, 4 * key_warpgroups);
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == key_warpgroups) {
    give_registers<24>();
    if (threadIdx.x == key_warpgroups * 128) feed_queries(ring, q_map, g_map, a, P::softmax);
    return;
  }
  take_registers<240>();
  const int tiles = a.padded / tile_rows, row = fragment_row();
  const float c = a.scale * log2_e;
  for (int work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int head, rank;
    a.order.at(work, head, rank);
    const int batch = head / a.kv_heads, kv_head = head % a.kv_heads;
    const int diagonal = rank * key_warpgroups + warpgroup, key = diagonal * tile_rows + row;
    uint32_t k[4][4], v[4][4];
    load_rows(k, place(a.x.k, batch, 0, kv_head), a.x.k.token, key, a.tokens);
    load_rows(v, place(a.x.v, batch, 0, kv_head), a.x.v.token, key, a.tokens);
    KeySums<P::groups> sums;
#pragma unroll
    for (int g = 0; g < P::groups; ++g) clear(sums.dk[g]);
    clear(sums.dv[0]);
#pragma unroll 1
    for (int h = 0; h < a.group; ++h) {
#pragma unroll 1
      for (int n = rank * key_warpgroups; n < min(diagonal, tiles); ++n) {  // queries before all these keys
        ring.wait_full();
        ring.release();
        ring.advance();
      }
#pragma unroll 1
      for (int n = diagonal; n < tiles; ++n) {
        ring.wait_full();
        add_queries<score>(sums, k, v, ring.data(), n == diagonal, row, c);
        ring.release();
        ring.advance();
      }
    }
    const float square = P::softmax ? 1 : a.scale * a.scale;
    write_rows(a.x.dk, sums.dk, P::softmax ? a.scale : 2 * square, batch, kv_head, key, a.tokens);
    write_rows(a.x.dv, sums.dv, square, batch, kv_head, key, a.tokens);
  }
}

// --- queries kernel ---

template <Score score>
constexpr int query_warpgroups = Plan<score>::groups == 1 ? 3 : 2;
template <Score score>
constexpr int query_threads = 128 * (query_warpgroups<score> + 1);
using QueryRing = Ring<10, 2 * tile_bytes>;  // a stage: 64 keys and their values

// s = s (dp - delta) of this thread's two rows, and 0 where the key comes after the query.
__device__ __forceinline__ void gradient(float (&s)[32], const float (&dp)[32], const float (&delta)[2],
                                         bool masked, int query) {
  const int lane = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] *= dp[i] - delta[i / 2 % 2];
  if (masked) {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (i / 4 * 8 + i % 2 + lane > query + i / 2 % 2 * 8) s[i] = 0;
  }
}

// One tile of 64 keys. query: the thread's first row in the 64, for the tile on the diagonal.
template <Score score>
__device__ __forceinline__ void add_keys(float (&dq)[Plan<score>::groups][Plan<score>::part],
                                         const uint32_t (&q)[4][4], const uint32_t (&g)[4][4], uint32_t stage,
                                         const float (&delta)[2], const float (&lse)[2], bool masked,
                                         int query, float c) {
  using P = Plan<score>;
  const uint64_t k_tile = tile_operand(stage), v_tile = tile_operand(stage + tile_bytes);
  float s[P::live][32], dp[32];
  uint32_t ds[P::live][4][4];
#pragma unroll
  for (int first = 0; first < P::groups; first += P::live) {
    fence_products();
    scores<score>(s, q, k_tile, first);
    commit_products();
    if (first == 0) product_64(dp, g, v_tile);
    commit_products();
    if constexpr (P::softmax) {
      wait_products<1>(s);
#pragma unroll
      for (int i = 0; i < 32; ++i) s[0][i] = power_of_two(fmaf(s[0][i], c, -lse[i / 2 % 2]));
    }
    wait_products<0>(s, dp);
#pragma unroll
    for (int i = 0; i < P::live; ++i) {
      gradient(s[i], dp, delta, masked, query);
      round_tile(ds[i], s[i]);
    }
    fence_products();
#pragma unroll
    for (int i = 0; i < P::live; ++i) add_group(dq[first + i], ds[i], k_tile, first + i);
    commit_products();
    wait_products<0>();
  }
}

__device__ __forceinline__ void feed_keys(QueryRing& ring, const CUtensorMap& k_map, const CUtensorMap& v_map,
                                          const Arguments& a, int warpgroups) {
  const int tiles = a.padded / tile_rows;
  for (int work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int head, rank;
    a.order.at(work, head, rank);
    const int batch = head / a.heads, kv_head = head % a.heads / a.group;
    const int count = min((a.order.tiles - rank) * warpgroups, tiles);
    for (int n = 0; n < count; ++n) {
      ring.wait_empty();
      const uint32_t full = ring.full(ring.stage);
      barrier_expect(full, 2 * tile_bytes);
      copy_tile(ring.data(), k_map, n * tile_rows, kv_head, batch, full);
      copy_tile(ring.data() + tile_bytes, v_map, n * tile_rows, kv_head, batch, full);
      ring.advance();
    }
  }
}

template <Score score>
__global__ __launch_bounds__(query_threads<score>,
                             1) void queries_kernel(const __grid_constant__ CUtensorMap k_map,
                                                    const __grid_constant__ CUtensorMap v_map,
                                                    const __grid_constant__ Arguments a) {
  using P = Plan<score>;
  constexpr int warpgroups = query_warpgroups<score>;
  extern __shared__ uint8_t shared[];
  QueryRing ring(shared, 4 * warpgroups);
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == warpgroups) {
    give_registers<warpgroups == 3 ? 32 : 24>();
    if (threadIdx.x == warpgroups * 128) feed_keys(ring, k_map, v_map, a, warpgroups);
    return;
  }
  take_registers<warpgroups == 3 ? 160 : 240>();
  const int tiles = a.padded / tile_rows, row = fragment_row();
  const float c = a.scale * log2_e;
  for (int work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int head, rank;
    a.order.at(work, head, rank);
    const int batch = head / a.heads, h = head % a.heads, tile = (a.order.tiles - 1 - rank) * warpgroups;
    const int diagonal = tile + warpgroup, query = diagonal * tile_rows + row;
    uint32_t q[4][4], g[4][4];
    load_rows(q, place(a.x.q, batch, 0, h), a.x.q.token, query, a.tokens);
    load_rows(g, place(a.g, batch, 0, h), a.g.token, query, a.tokens);
    float delta[2] = {0, 0}, lse[2] = {0, 0};
    if (diagonal < tiles) {
      const int64_t at = int64_t{head} * a.padded + query;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        delta[r] = a.delta[at + 8 * r];
        if constexpr (P::softmax) lse[r] = a.lse[at + 8 * r];
      }
    }
    float dq[P::groups][P::part];
#pragma unroll
    for (int i = 0; i < P::groups; ++i) clear(dq[i]);
    const int all = min(tile + warpgroups, tiles), mine = diagonal < tiles ? diagonal + 1 : 0;
#pragma unroll 1
    for (int n = 0; n < mine; ++n) {
      ring.wait_full();
      add_keys<score>(dq, q, g, ring.data(), delta, lse, n == diagonal, row, c);
      ring.release();
      ring.advance();
    }
#pragma unroll 1
    for (int n = mine; n < all; ++n) {  // keys after all of this warpgroup's queries
      ring.wait_full();
      ring.release();
      ring.advance();
    }
    int same = work;  // its places are worked out again: they would not fit in registers through the loop
    asm volatile("" : "+r"(same));
    a.order.at(same, head, rank);
    const int first = ((a.order.tiles - 1 - rank) * warpgroups + warpgroup) * tile_rows;
    write_rows(a.x.dq, dq, P::softmax ? a.scale : 2 * a.scale * a.scale, head / a.heads, head % a.heads,
               first + row, a.tokens);
  }
}

int64_t padded_tokens(const Size& size) {
  return ceil_div(size.tokens, tile_rows) * tile_rows;
}

}  // namespace

int64_t attention_backward_scratch(const Size& size) {
  return size.batch * size.heads * (2 * 4 * padded_tokens(size) + 2 * 64 * size.tokens);
}

template <Score score>
void attention_backward(GpuStream stream, const AttentionBackward& x, float scale, const Size& size) {
  if (!available() || size.batch * size.tokens * size.heads == 0) return;
  KATA_CHECK(supports(size) && supports(x.dq) && supports(x.dk) && supports(x.dv) && supports(x.d_o) &&
             supports(x.q) && supports(x.k) && supports(x.v) && supports(x.o) && scale > 0);
  const int64_t padded = padded_tokens(size), rows = size.batch * size.heads * padded;
  float* const delta = static_cast<float*>(x.scratch);
  const Statistics to = {delta, delta + rows, reinterpret_cast<bf16*>(delta + 2 * rows)};
  rows_kernel<score>
      <<<grid(ceil_div(rows, 32)), 256, 0, stream>>>(to, x, rows, padded, size.tokens, size.heads);
  check_launch("sm90 attention_backward rows");

  View<const bf16> g = x.d_o;
  if constexpr (score != Score::softmax) g = {to.g, size.tokens * size.heads * 64, size.heads * 64, 64};
  Arguments a = {x,
                 g,
                 to.delta,
                 to.lse,
                 static_cast<int>(size.tokens),
                 static_cast<int>(padded),
                 static_cast<int>(size.heads),
                 static_cast<int>(size.kv_heads),
                 static_cast<int>(size.heads / size.kv_heads),
                 scale,
                 work_order(size.batch * size.kv_heads, ceil_div(size.tokens, key_rows), size.tokens)};
  allow_shared(keys_kernel<score>, KeyRing::bytes);
  keys_kernel<score><<<std::min(a.order.count(), multiprocessors()), key_threads, KeyRing::bytes, stream>>>(
      tensor_map(x.q, size, size.heads, tile_rows), tensor_map(g, size, size.heads, tile_rows), a);
  check_launch("sm90 attention_backward keys");

  constexpr int warpgroups = query_warpgroups<score>;
  a.order = work_order(size.batch * size.heads, ceil_div(size.tokens, tile_rows * warpgroups), size.tokens);
  allow_shared(queries_kernel<score>, QueryRing::bytes);
  queries_kernel<score>
      <<<std::min(a.order.count(), multiprocessors()), query_threads<score>, QueryRing::bytes, stream>>>(
          tensor_map(x.k, size, size.kv_heads, tile_rows), tensor_map(x.v, size, size.kv_heads, tile_rows),
          a);
  check_launch("sm90 attention_backward queries");
}

#define KATA_INSTANCE(score) \
  template void attention_backward<score>(GpuStream, const AttentionBackward&, float, const Size&)
KATA_INSTANCE(Score::softmax);
KATA_INSTANCE(Score::psd1);
KATA_INSTANCE(Score::psd2);
KATA_INSTANCE(Score::psd4);
#undef KATA_INSTANCE

}  // namespace kata::cuda::sm90
