// What both passes of kernels/common/mma_attention.h share: documents, the decay between tokens, launches.
#pragma once

#include "kernels/common/launch.h"
#include "kernels/common/mma.cuh"
#include "kernels/common/mma_attention.h"

namespace kata::cuda {

constexpr int mma_tile = 64;     // tokens that a decay's sums restart after; padding of rows of statistics
constexpr int mma_columns = 32;  // scores of a row that are in registers together
constexpr float mma_log2_e = 1.4426950408889634f;

template <TileScore score>
inline constexpr int score_groups = score == TileScore::psd4   ? 4
                                    : score == TileScore::psd2 ? 2
                                                               : 1;

inline int64_t padded_tokens(const AttentionSize& size) {
  return ceil_div(size.tokens, mma_tile) * mma_tile;
}

// The first token that a query sees; along the queries it never falls.
struct TileStarts {
  const int32_t* data;  // null: 0
  int64_t time;         // of a batch row
  int before = 0;       // tokens before query 0, from which starts count
  __device__ __forceinline__ int first_seen(int b, int t) const {
    if (data == nullptr) return 0;
    return max(before + data[b * time + t], 0);
  }
};

// The log, to the base 2, of what fades between tokens s <= t: (in_tile[t] - in_tile[s]) + (before[tile of t]
// - before[tile of s]), where in_tile sums from a tile's first token on and before sums all tiles before it.
struct TileFade {
  const float* in_tile = nullptr;  // [pairs, padded tokens]; null: no decay
  const double* before = nullptr;  // [pairs, tiles]
  int padded = 0;                  // a multiple of mma_tile
  __device__ __forceinline__ bool given() const { return in_tile != nullptr; }
  __device__ __forceinline__ const float* row(int pair) const { return in_tile + pair * int64_t{padded}; }
  __device__ __forceinline__ const double* sums(int pair) const {
    return before + pair * int64_t{padded / mma_tile};
  }
  // Between the tiles of two tokens.
  __device__ __forceinline__ float between(int pair, int later, int earlier) const {
    return static_cast<float>(sums(pair)[min(later, padded - 1) / mma_tile] - sums(pair)[earlier / mma_tile]);
  }
  // The first tile of which anything is left at `tile`: of those before it every power of two is 0 in fp32.
  __device__ __forceinline__ int first_left(int pair, int tile) const {
    const double* sum = sums(pair);
    int low = 0, high = tile;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (sum[tile] - sum[middle + 1] < -127)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
  // The tile from which on nothing is left of `tile`.
  __device__ __forceinline__ int first_faded(int pair, int tile) const {
    const double* sum = sums(pair);
    int low = tile + 1, high = padded / mma_tile;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (sum[middle] - sum[tile + 1] < -127)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
};

// A warp has a tile: in_tile, and the tile's sum in `before`. The log of a document's first token is not
// read: what it would fade is not seen. A log below -100 leaves nothing, and counts as that, so that
// differences inside a tile stay exact.
static __global__ void fade_sums_kernel(float* in_tile, double* before, LogDecay<float> decay, int padded,
                                        int64_t units) {
  const int64_t unit = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (unit >= units) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, tiles = padded / mma_tile;
  const int64_t pair = unit / tiles, b = pair / decay.heads, h = pair % decay.heads;
  double passed = 0;
  for (int64_t first = unit % tiles * mma_tile, end = first + mma_tile; first < end; first += 32) {
    const int64_t t = first + lane;
    double sum = 0;
    if (t > 0 && t < decay.tokens && !decay.starts.is_start(b, t)) {
      const float log = decay.log[(b * decay.tokens + t) * decay.heads + h];
      sum = log < -100.f ? -100. : static_cast<double>(log);
    }
    for (int step = 1; step < 32; step *= 2) {
      const double left = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += left;
    }
    sum += passed;
    in_tile[pair * padded + t] = static_cast<float>(sum * 1.4426950408889634);
    passed = __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
  if (lane == 0) before[unit] = passed * 1.4426950408889634;
}
// In place: the sums of the tiles before each; a warp has a pair.
static __global__ void fade_before_kernel(double* before, int tiles) {
  const int lane = static_cast<int>(threadIdx.x);
  double* sums = before + blockIdx.x * int64_t{tiles};
  double passed = 0;
  for (int first = 0; first < tiles; first += 32) {
    const double own = first + lane < tiles ? sums[first + lane] : 0;
    double sum = own;
    for (int step = 1; step < 32; step *= 2) {
      const double left = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += left;
    }
    sum += passed;
    if (first + lane < tiles) sums[first + lane] = sum - own;
    passed = __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
}

// Floats of scratch that a decay's sums take.
inline int64_t fade_scratch(const AttentionSize& size) {
  const int64_t padded = padded_tokens(size);
  return size.batch * size.kv_heads * (padded + ceil_div(2 * padded / mma_tile, 4) * 4);
}
inline TileFade make_fade(cudaStream_t stream, float* scratch, const LogDecay<float>& decay,
                          const AttentionSize& size) {
  if (decay.log == nullptr) return {};
  const int64_t pairs = size.batch * size.kv_heads, padded = padded_tokens(size), tiles = padded / mma_tile;
  double* before = reinterpret_cast<double*>(scratch + pairs * padded);
  fade_sums_kernel<<<grid(ceil_div(pairs * tiles, 4)), 128, 0, stream>>>(
      scratch, before, decay, static_cast<int>(padded), pairs * tiles);
  check_launch("mma_attention sums of decays");
  fade_before_kernel<<<grid(pairs), 32, 0, stream>>>(before, static_cast<int>(tiles));
  check_launch("mma_attention sums of decays before tiles");
  return {scratch, before, static_cast<int>(padded)};
}

// Two neighbouring numbers in shared memory: those of a lane's columns in block n of 8.
__device__ __forceinline__ float2 column_pair(uint32_t numbers, int n) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(x.x), "=f"(x.y)
               : "r"(numbers + 32 * n + 8 * (threadIdx.x % 4))
               : "memory");
  return x;
}
__device__ __forceinline__ int2 column_ids(uint32_t numbers, int n) {
  const float2 x = column_pair(numbers, n);
  return {__float_as_int(x.x), __float_as_int(x.y)};
}

// The lane's parts of M blocks of 16 rows of one head, times a factor.
template <int M, int N>
__device__ __forceinline__ void write_rows(bf16* head, int64_t stride, const float (&c)[M][N][4],
                                           const float (&factor)[M][2], int row, int end) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = row + 16 * m + 8 * r;
      if (at >= end) continue;
      bf16* to = head + at * stride + 2 * (threadIdx.x % 4);
#pragma unroll
      for (int n = 0; n < N; ++n)
        *reinterpret_cast<uint32_t*>(to + 8 * n) =
            pack_pair(c[m][n][2 * r] * factor[m][r], c[m][n][2 * r + 1] * factor[m][r]);
    }
}

// The sum over the four lanes that share a row.
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}

// A warp's number, known to be the same in all of its lanes.
__device__ __forceinline__ int warp_number() {
  return __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
}

// f.template operator()<W>()
template <class F>
void with_mma_width(int64_t width, F&& f) {
  if (width == 32) return f.template operator()<32>();
  if (width == 64) return f.template operator()<64>();
  f.template operator()<128>();
}

template <class Kernel, class Arguments>
void launch_tiles(Kernel kernel, int64_t blocks, int shared, cudaStream_t stream,
                  const Arguments& arguments) {
  if (shared > 48 * 1024)
    KATA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared) ==
               cudaSuccess);
  kernel<<<grid(blocks), mma_threads, static_cast<size_t>(shared), stream>>>(arguments);
  check_launch("mma_attention");
}

}  // namespace kata::cuda
