// The delta rule in chunks of 64 tokens: what its kernels share, and the inverse of a chunk's system
// (kernels/delta_attention_chunked.cu says how the kernels follow each other).
//
// A chunk is one tile of kernels/common/chunk_tiles.cuh. Its keys are kept as rows with an odd stride (right
// factor), from which features are built either way.
#pragma once

#include "kernels/common/chunk_gradient.cuh"
#include "ops/delta_attention.h"

namespace kata::cuda {

constexpr int tile_stride = 65;  // of a right factor of up to 64 columns

template <class T>
struct DeltaCall {
  DeviceMap map;
  AttentionSize size;
  int group, columns;  // query heads of a key head; dv
  int64_t chunks;
  TokenHeads<const T> q, k, v, d_o;
  const float *beta, *log;  // [B, T, Hkv]; log may be null
  const int32_t* starts;    // [B, T] or null
  const float* errors;      // [B, T, Hkv, dv]
  const float* dv;          // likewise, of the backward pass, before it is rounded
  // The round: `pairs` (batch row, key head) from first_pair on, chunks [begin, begin + slots).
  int64_t first_pair, pairs, begin, slots;
  float* inverse;    // [pairs][slots][64][64]
  float* states;     // [pairs][slots][n][dv]: S before each chunk
  float* gradients;  // likewise: dS after each chunk
  float* gates;      // [pairs][slots][4][64], for the tensor cores (delta_mma_forward.cuh)
  bool carried;      // a state came in before the first chunk

  __device__ int64_t gate(int64_t b, int64_t t, int64_t kv) const {
    return (b * size.tokens + t) * size.kv_heads + kv;
  }
  __device__ int64_t state_size() const { return int64_t{map.features} * columns; }
  // S before chunk c is 0 by its nature, and so is dS after it.
  __device__ bool empty_before(int64_t c) const { return c == 0 && !carried; }
  __device__ bool empty_after(int64_t c) const { return c + 1 == chunks; }
};

// Where a block works: a chunk of a pair.
struct DeltaPlace {
  int64_t unit, pair, b, kv, c, first;
  int count;  // tokens
};
template <class T>
__device__ __forceinline__ DeltaPlace delta_place(const DeltaCall<T>& call, int64_t index, int64_t slot) {
  const int64_t pair = call.first_pair + index, c = call.begin + slot, first = c * tile;
  const int64_t left = call.size.tokens - first;
  return {index * call.slots + slot,
          pair,
          pair / call.size.kv_heads,
          pair % call.size.kv_heads,
          c,
          first,
          static_cast<int>(left < tile ? left : tile)};
}
template <class T>
__device__ __forceinline__ DeltaPlace delta_place(const DeltaCall<T>& call, int64_t unit) {
  return delta_place(call, unit / call.slots, unit % call.slots);
}

// Another chunk of the same pair.
template <class T>
__device__ __forceinline__ DeltaPlace delta_place(const DeltaCall<T>& call, DeltaPlace at, int64_t c) {
  at.unit += c - at.c;
  at.c = c;
  at.first = c * tile;
  const int64_t left = call.size.tokens - at.first;
  at.count = static_cast<int>(left < tile ? left : tile);
  return at;
}

// What stands between the tokens of a chunk, and beta.
struct alignas(16) ChunkGates {
  TileTimes times;
  float read[tile], write[tile];  // from the chunk's start to a token; from a token to the chunk's last
  float beta[tile];
  float keep;  // over the chunk
};

// Every thread of the block calls it; whoever reads the gates synchronises first. Sums of log a run from the
// chunk's first token in double, so that their differences are exact in float. The log of a document's first
// token is not read, and below -1000 a factor is 0 anyway.
template <class T>
__device__ __forceinline__ void load_gates(ChunkGates& gates, const DeltaCall<T>& call,
                                           const DeltaPlace& at) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 32) {
    double before = 0;
    for (int r = thread; r < tile; r += 32) {
      const int64_t t = at.first + r;
      double sum = 0;
      const bool begins =
          call.starts != nullptr && r < at.count && call.starts[at.b * call.size.tokens + t] == t;
      if (call.log != nullptr && r < at.count && !begins) {
        const float log = call.log[call.gate(at.b, t, at.kv)];
        sum = log < -1000.f ? -1000. : static_cast<double>(log);
      }
      for (int step = 1; step < 32; step *= 2) {
        const double left = __shfl_up_sync(0xFFFFFFFFu, sum, step);
        if (thread >= step) sum += left;
      }
      sum += before;
      before = __shfl_sync(0xFFFFFFFFu, sum, 31);
      gates.times.log_sum[r] = sum;
      gates.times.start[r] =
          call.starts == nullptr || r >= at.count ? -1 : call.starts[at.b * call.size.tokens + t];
    }
  }
  __syncthreads();
  if (thread >= tile) return;
  const int last = at.count - 1;
  const bool inside = thread < at.count;
  const float read =
      gates.times.start[thread] >= at.first ? 0.f : ChunkFade::factor(gates.times.log_sum[thread]);
  gates.read[thread] = inside ? read : 0.f;
  gates.write[thread] = !inside || gates.times.start[last] > at.first + thread
                            ? 0.f
                            : ChunkFade::factor(gates.times.log_sum[last] - gates.times.log_sum[thread]);
  gates.beta[thread] = inside ? call.beta[call.gate(at.b, at.first + thread, at.kv)] : 0.f;
  if (thread == last) gates.keep = read;
}

// f[r * left_stride + t] = feature p + r of row t of u, a right factor: rows are tokens. Takes and leaves the
// block in step.
__device__ __forceinline__ void features_by_token(float* f, unsigned* table, const float* u, int row,
                                                  int column, const DeviceMap& map, int p) {
  const int thread = static_cast<int>(threadIdx.x), token = thread % tile;
  if (thread < tile) table[thread] = packed_entry(feature_entry(map, min(p + thread, map.features - 1)));
  __syncthreads();
  for (int r = thread / tile; r < tile; r += tile_threads / tile)
    f[r * left_stride + token] = feature_of(map, unpacked_entry(table[r]), u + token * row, column);
  __syncthreads();
}
// f[t * left_stride + r], rows are features; 0 where there are no more features.
__device__ __forceinline__ void features_by_feature(float* f, const float* u, int row, const DeviceMap& map,
                                                    int p) {
  const int mine = static_cast<int>(threadIdx.x) % tile;
  const bool inside = p + mine < map.features;
  const FeatureEntry entry = feature_entry(map, inside ? p + mine : 0);
  for (int t = static_cast<int>(threadIdx.x) / tile; t < tile; t += tile_threads / tile)
    f[t * left_stride + mine] = inside ? feature_of(map, entry, u + t * row, 1) : 0.f;
  __syncthreads();
}

// Rows p .. p + 64 and columns e .. e + n of a state to w[row * (width + 1) + column], 0 elsewhere.
template <int width>
__device__ __forceinline__ void load_state_tile(float* w, const float* state, int features, int columns,
                                                int p, int e, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * width; i += tile_threads) {
    const int r = i / width, j = i % width;
    const bool inside = p + r < features && j < n;
    w[r * (width + 1) + j] = inside ? state[int64_t{p + r} * columns + e + j] : 0.f;
  }
}

// A chunk's values in a tile: value(token of the chunk, column) to w[r * row + j * column]; 0 elsewhere.
template <int width, class Value>
__device__ __forceinline__ void fill_tile(float* w, int row, int column, int count, int n, Value&& value) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * width; i += tile_threads) {
    const int r = i / width, j = i % width;
    w[r * row + j * column] = r < count && j < n ? value(r, j) : 0.f;
  }
}

// Columns tx + 16 j of a right factor.
template <int N>
__device__ __forceinline__ void column_offsets(int (&offset)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) offset[j] = thread_column() + 16 * j;
}

// a[i][j] = the score of an own row (left factor) and an other row (right factor), decayed; 0 where the query
// does not see the key and, if strict, on the diagonal. keys: the own rows are keys.
template <bool keys>
__device__ __forceinline__ void fade_chunk(float (&a)[4][4], const ChunkGates& gates, const DeltaPlace& at,
                                           bool decays, bool strict) {
  fade_tile<keys>(a, gates.times, gates.times, at.first, at.count, at.first, at.count, decays);
  if (!strict) return;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (thread_row() + i == thread_column() + 16 * j) a[i][j] = 0;
}
template <bool keys>
__device__ __forceinline__ void chunk_scores(float (&a)[4][4], const float* own, const float* other,
                                             int stride, const DeviceMap& map) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) a[i][j] = 0;
  for (int dot = 0; dot < score_dots(map); ++dot) {
    float r[4][4];
    tile_dot<keys>(r, own, other, stride, map, dot);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) a[i][j] += map.first_order ? r[i][j] : r[i][j] * r[i][j];
  }
}
// x = the inverse of I + a, a strictly lower triangular, both [64][tile_stride]: forward substitution inside
// blocks of 16 rows, then row of blocks by row of blocks. diagonal: [4][16][17]; r: [16][49].
__device__ __forceinline__ void invert_unit_lower(float* x, const float* a, float* diagonal, float* r) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < tile * tile_stride; i += tile_threads) x[i] = 0;
  if (thread < tile) {
    const int block = thread / 16, j = thread % 16;
    float y[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float* row = a + (16 * block + i) * tile_stride + 16 * block;
      float sum = i == j ? 1.f : 0.f;
#pragma unroll
      for (int m = 0; m < i; ++m) sum -= row[m] * y[m];
      y[i] = sum;
      diagonal[(block * 16 + i) * 17 + j] = sum;
    }
  }
  __syncthreads();
  const int i = thread / 16, column = thread % 16;
  for (int block = 0; block < 4; ++block) {
    const float *own = diagonal + block * 16 * 17, *row = a + (16 * block + i) * tile_stride;
    float* to = x + (16 * block + i) * tile_stride;
    for (int c = column; c < 16 * block; c += 16) {
      float sum = 0;
      for (int m = c / 16 * 16; m < 16 * block; ++m) sum += row[m] * x[m * tile_stride + c];
      r[i * 49 + c] = sum;
    }
    __syncthreads();
    for (int c = column; c < 16 * block; c += 16) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < 16; ++m) sum += own[i * 17 + m] * r[m * 49 + c];
      to[c] = -sum;
    }
    to[16 * block + column] = own[i * 17 + column];
    __syncthreads();
  }
}

// The inverse of a chunk's system, as the left factor that the sequential kernels multiply by. Forward: of
// I + L with L[t,s] = G kappa(k_t, k_s) beta_s, which gives the errors, laid out [s][t]. Backward: of I + N
// with N[t,s] = beta_t G kappa(k_t, k_s), transposed, so laid out [t][s]. A block has a chunk.
template <class T>
int64_t inverse_shared(const DeltaCall<T>& call) {
  const int64_t width = call.map.width;
  return (width * left_stride + tile * (width | 1) + 2 * tile * tile_stride + 64 * 17 + 16 * 49) * 4 +
         static_cast<int64_t>(sizeof(ChunkGates));
}
template <class T, bool backward>
__global__ void __launch_bounds__(tile_threads) inverse_kernel(DeltaCall<T> call) {
  extern __shared__ __align__(16) float shared[];
  const int width = call.map.width, stride = width | 1;
  ChunkGates& gates = *reinterpret_cast<ChunkGates*>(shared);
  float *own = shared + sizeof(ChunkGates) / 4, *other = own + width * left_stride;
  float *a = other + tile * stride, *x = a + tile * tile_stride, *diagonal = x + tile * tile_stride;
  const DeltaPlace at = delta_place(call, blockIdx.x);
  load_gates(gates, call, at);
  load_lifted(own, 1, left_stride, call.k, at.b, at.kv, at.first, at.count, call.map);
  load_lifted(other, stride, 1, call.k, at.b, at.kv, at.first, at.count, call.map);
  __syncthreads();
  float score[4][4];
  chunk_scores<false>(score, own, other, stride, call.map);
  fade_chunk<false>(score, gates, at, call.log != nullptr, true);
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int t = thread_row() + i, s = thread_column() + 16 * j;
      a[t * tile_stride + s] = score[i][j] * gates.beta[backward ? t : s];
    }
  __syncthreads();
  invert_unit_lower(x, a, diagonal, diagonal + 64 * 17);
  float* to = call.inverse + at.unit * tile * tile;
  for (int i = static_cast<int>(threadIdx.x); i < tile * tile; i += tile_threads)
    to[i] = backward ? x[i / tile * tile_stride + i % tile] : x[i % tile * tile_stride + i / tile];
}
__device__ __forceinline__ void load_inverse(float* f, const float* inverse) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * tile; i += tile_threads)
    f[i / tile * left_stride + i % tile] = inverse[i];
}

// dbeta = the sum of the slices' parts, in order.
static __global__ void sum_parts_kernel(float* to, const float* parts, int slices, int64_t rows) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int s = 0; s < slices; ++s) sum += parts[s * rows + row];
  to[row] = sum;
}

}  // namespace kata::cuda
