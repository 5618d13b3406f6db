// Forward pass: each computing warpgroup has 64 queries, whose scores and sums stay in its registers, and all
// of a block share the keys and values that one more warpgroup copies ahead of them.
//
// Floor: T (64 + 64) operations a token and head at the tensor units' rate; the fp32 work on the scores
// runs beside it in the other warpgroups. Bytes do not matter beyond a few hundred tokens.
#include "kernels/sm90/attention.h"
#include "kernels/sm90/pipeline.cuh"

namespace kata::cuda::sm90 {

namespace {

template <Score score>
struct Plan {
  static constexpr int groups = score == Score::psd4 ? 4 : score == Score::psd2 ? 2 : 1;
  static constexpr int warpgroups = groups == 4 ? 2 : 3;
  static constexpr int keys = groups == 1 ? 128 : 64;  // of one stage
  static constexpr int stages = groups == 1 ? 4 : 8;
  static constexpr int queries = 64 * warpgroups, threads = 128 * (warpgroups + 1);
  static constexpr int tile_bytes = keys * 128;
  using Stages = Ring<stages, 2 * tile_bytes>;
};

struct Arguments {
  View<bf16> o;
  float* statistic;
  View<const bf16> q;
  int tokens, heads, group;
  float scale;
  WorkOrder order;
};

// One 64-query tile's running sums. Rows 0 and 1 of a thread are 8 apart.
struct Rows {
  float out[32], sum[2], most[2];
};

// s: scores, column 0 is key `key` and row 0 query `query` of this thread's view. Returns the weights in s.
template <Score score, int N>
__device__ __forceinline__ void weigh(float (&s)[N], Rows& rows, int query, int key, bool masked, float c) {
  if (masked) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (key + i / 4 * 8 + i % 2 > query + i / 2 % 2 * 8) s[i] = score == Score::softmax ? -INFINITY : 0;
  }
  if constexpr (score == Score::softmax) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = rows.most[r];
#pragma unroll
      for (int i = 2 * r; i < N; i += 4) most = fmaxf(most, fmaxf(s[i], s[i + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float shrink = power_of_two((rows.most[r] - most) * c), base = most * c;
      rows.most[r] = most;
      rows.sum[r] *= shrink;
#pragma unroll
      for (int i = 2 * r; i < 32; i += 4) {
        rows.out[i] *= shrink;
        rows.out[i + 1] *= shrink;
      }
#pragma unroll
      for (int i = 2 * r; i < N; i += 4) {
        s[i] = power_of_two(fmaf(s[i], c, -base));
        s[i + 1] = power_of_two(fmaf(s[i + 1], c, -base));
      }
    }
  }
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    rows.sum[0] += s[i] + s[i + 1];
    rows.sum[1] += s[i + 2] + s[i + 3];
  }
}

// Adds the keys of one stage to the rows.
template <Score score>
__device__ __forceinline__ void attend(Rows& rows, const uint32_t (&q)[4][4], uint32_t tiles, int query,
                                       int key, bool masked, float c) {
  using P = Plan<score>;
  constexpr int N = P::keys / 2, steps = 4 / P::groups;
  const uint64_t k_tile = tile_operand(tiles), v_tile = tile_operand(tiles + P::tile_bytes);
  float s[P::groups][N];
  fence_products();
#pragma unroll
  for (int g = 0; g < P::groups; ++g)
#pragma unroll
    for (int k = 0; k < steps; ++k)
      multiply<0>(s[g], q[g * steps + k], k_tile + (g * steps + k) * columns_16, k > 0);
  commit_products();
  wait_products<0>(s);
  if constexpr (score != Score::softmax) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float a = s[0][i] * s[0][i];
#pragma unroll
      for (int g = 1; g < P::groups; ++g) a = fmaf(s[g][i], s[g][i], a);
      s[0][i] = a;
    }
  }
  weigh<score>(s[0], rows, query, key, masked, c);
  uint32_t p[P::keys / 16][4];
  round_tile(p, s[0]);
  fence_products();
#pragma unroll
  for (int k = 0; k < P::keys / 16; ++k) multiply<1>(rows.out, p[k], v_tile + k * rows_16, 1);
  commit_products();
  wait_products<0>(rows.out);
}

// Divides by the sums and writes outputs and statistics.
template <Score score>
__device__ __forceinline__ void finish(const Rows& rows, const Arguments& a, int batch, int head, int query) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = rows.sum[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int64_t token = query + 8 * r;
    if (token >= a.tokens) continue;
    const float mass = score == Score::softmax ? sum : sum * a.scale * a.scale;
    const float inverse = score == Score::softmax || mass > 1e-20f ? 1 / sum : 0;
    if (threadIdx.x % 4 == 0)
      a.statistic[(batch * int64_t{a.tokens} + token) * a.heads + head] =
          score == Score::softmax ? rows.most[r] * a.scale + logf(sum) : mass;
    bf16* to = place(a.o, batch, token, head) + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      *reinterpret_cast<uint32_t*>(to + 8 * j) =
          pack_bf16(rows.out[4 * j + 2 * r] * inverse, rows.out[4 * j + 2 * r + 1] * inverse);
  }
}

template <Score score>
__global__ __launch_bounds__(Plan<score>::threads,
                             1) void forward_kernel(const __grid_constant__ CUtensorMap k_map,
                                                    const __grid_constant__ CUtensorMap v_map,
                                                    const __grid_constant__ Arguments a) {
  using P = Plan<score>;
  extern __shared__ uint8_t shared[];
  typename P::Stages ring(shared, 4 * P::warpgroups);
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  const auto stages_of = [&](int end) { return (min(end, a.tokens) + P::keys - 1) / P::keys; };
  if (warpgroup == P::warpgroups) {
    give_registers<P::warpgroups == 3 ? 32 : 24>();
    if (threadIdx.x != P::warpgroups * 128) return;
    for (int work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
      int head, rank;
      a.order.at(work, head, rank);
      const int batch = head / a.heads, kv_head = head % a.heads / a.group;
      const int count = stages_of((a.order.tiles - rank) * P::queries);
      for (int n = 0; n < count; ++n) {
        ring.wait_empty();
        const uint32_t full = ring.full(ring.stage);
        barrier_expect(full, 2 * P::tile_bytes);
        copy_tile(ring.data(), k_map, n * P::keys, kv_head, batch, full);
        copy_tile(ring.data() + P::tile_bytes, v_map, n * P::keys, kv_head, batch, full);
        ring.advance();
      }
    }
    return;
  }
  take_registers<P::warpgroups == 3 ? 160 : 240>();
  const int row = fragment_row();
  const float c = a.scale * log2_e;
  for (int work = blockIdx.x; work < a.order.count(); work += gridDim.x) {
    int head, rank;
    a.order.at(work, head, rank);
    const int batch = head / a.heads, tile = (a.order.tiles - 1 - rank) * P::queries;
    const int first = tile + 64 * warpgroup;
    uint32_t q[4][4];
    load_rows(q, place(a.q, batch, 0, head % a.heads), a.q.token, first + row, a.tokens);
    Rows rows = {{}, {0, 0}, {-INFINITY, -INFINITY}};
    clear(rows.out);
    const int all = stages_of(tile + P::queries), mine = first < a.tokens ? stages_of(first + 64) : 0;
#pragma unroll 1
    for (int n = 0; n < mine; ++n) {
      const int key = n * P::keys;
      ring.wait_full();
      attend<score>(rows, q, ring.data(), first + row, key + 2 * (threadIdx.x % 4), key + P::keys - 1 > first,
                    c);
      ring.release();
      ring.advance();
    }
#pragma unroll 1
    for (int n = mine; n < all; ++n) {  // keys after all of this warpgroup's queries
      ring.wait_full();
      ring.release();
      ring.advance();
    }
    finish<score>(rows, a, batch, head % a.heads, first + row);
  }
}

}  // namespace

bool available() {
  static const bool found = [] {
    int device = 0, major = 0, minor = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return false;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return major == 9 && minor == 0 && tensor_map_encoder() != nullptr;
  }();
  return found;
}

bool supports(const Size& size) {
  return size.width == 64 && size.value_width == 64 && size.kv_heads > 0 && size.heads % size.kv_heads == 0 &&
         size.tokens < (int64_t{1} << 30) &&
         size.batch * size.heads * ceil_div(size.tokens, 64) < (int64_t{1} << 31);
}

template <Score score>
void attention_forward(GpuStream stream, const AttentionForward& x, float scale, const Size& size) {
  using P = Plan<score>;
  if (!available() || size.batch * size.tokens * size.heads == 0) return;
  KATA_CHECK(supports(size) && supports(x.o) && supports(x.q) && supports(x.k) && supports(x.v) && scale > 0);
  const Arguments a = {x.o,
                       x.statistic,
                       x.q,
                       static_cast<int>(size.tokens),
                       static_cast<int>(size.heads),
                       static_cast<int>(size.heads / size.kv_heads),
                       scale,
                       work_order(size.batch * size.heads, ceil_div(size.tokens, P::queries), size.tokens)};
  allow_shared(forward_kernel<score>, P::Stages::bytes);
  forward_kernel<score>
      <<<std::min(a.order.count(), multiprocessors()), P::threads, P::Stages::bytes, stream>>>(
          tensor_map(x.k, size, size.kv_heads, P::keys), tensor_map(x.v, size, size.kv_heads, P::keys), a);
  check_launch("sm90 attention_forward");
}

#define KATA_INSTANCE(score) \
  template void attention_forward<score>(GpuStream, const AttentionForward&, float, const Size&)
KATA_INSTANCE(Score::softmax);
KATA_INSTANCE(Score::psd1);
KATA_INSTANCE(Score::psd2);
KATA_INSTANCE(Score::psd4);
#undef KATA_INSTANCE

}  // namespace kata::cuda::sm90
