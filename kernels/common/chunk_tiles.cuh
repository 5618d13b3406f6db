// Tiles of the chunked form in shared memory, and the products between them, in fp32.
//
// A block has 256 threads, 16 x 16: thread (ty, tx) has rows 4 ty .. 4 ty + 3 and columns tx + 16 j of every
// product. A left factor is kept transposed, [k][left_stride], so that four rows are one 16-byte access; a
// right factor keeps its rows, with an odd stride, so that it can be read along either side.
#pragma once

#include "kernels/common/features.cuh"
#include "ops/decay.h"

namespace kata::cuda {

constexpr int tile = 64;           // tokens, and features, of a tile
constexpr int tile_threads = 256;  // of a block
constexpr int left_stride = 68;    // of a left factor
constexpr int value_columns = 80;  // of a tile of values: up to 79 of v, and the mass
constexpr int value_stride = 81;   // of a tile of values or of a state

__device__ __forceinline__ int thread_row() {
  return static_cast<int>(threadIdx.x) / 16 * 4;
}
__device__ __forceinline__ int thread_column() {
  return static_cast<int>(threadIdx.x) % 16;
}

// acc[i][j] += sum over k of left[k][row i] right[k * step + offset[j]]
template <int N>
__device__ __forceinline__ void multiply(float (&acc)[4][N], const float* left, const float* right, int step,
                                         const int (&offset)[N], int depth) {
  const float* l = left + thread_row();
#pragma unroll 4
  for (int k = 0; k < depth; ++k) {
    const float4 x = *reinterpret_cast<const float4*>(l + k * left_stride);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float y = right[k * step + offset[j]];
      acc[0][j] += x.x * y;
      acc[1][j] += x.y * y;
      acc[2][j] += x.z * y;
      acc[3][j] += x.w * y;
    }
  }
}

// A state that no token touches is handed on. from: null for the empty state, to: null where it is not
// wanted.
inline void pass_state(cudaStream_t stream, float* to, const float* from, int64_t n) {
  if (to == nullptr || to == from || n == 0) return;
  const size_t bytes = static_cast<size_t>(n) * sizeof(float);
  if (from == nullptr)
    cudaMemsetAsync(to, 0, bytes, stream);
  else
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  check_launch("handing on a state");
}

// What a linear mixer's state loses between tokens of a chunk. log_sums[pair][t] is the sum of log a from the
// chunk's first token to t, in double, so that differences inside a chunk are exact in float.
struct ChunkFade {
  const double* log_sums;  // [batch * heads, tokens]; null: no decay
  const int32_t* starts;   // [batch, tokens]; null: no documents
  int64_t tokens;

  __device__ static float factor(double log) {
    const float x = static_cast<float>(log);
    return x < -87.f ? 0.f : expf(x);
  }
  __device__ double log_sum(int64_t pair, int64_t t) const {
    return log_sums == nullptr ? 0. : log_sums[pair * tokens + t];
  }
  __device__ int64_t start(int64_t b, int64_t t) const {
    return starts == nullptr ? -1 : starts[b * tokens + t];
  }
  // From the chunk's start to the read of t.
  __device__ float read(int64_t b, int64_t pair, int64_t t, int64_t begin) const {
    return start(b, t) >= begin ? 0.f : factor(log_sum(pair, t));
  }
  // From the write of t to the chunk's last token.
  __device__ float write(int64_t b, int64_t pair, int64_t t, int64_t last) const {
    return start(b, last) > t ? 0.f : factor(log_sum(pair, last) - log_sum(pair, t));
  }
};

// A tile's tokens as the decay between two of them needs it.
struct TileTimes {
  double log_sum[tile];
  int start[tile];
};
__device__ __forceinline__ void load_times(TileTimes& times, const ChunkFade& fade, int64_t b, int64_t pair,
                                           int64_t first, int count) {
  const int r = static_cast<int>(threadIdx.x);
  if (r >= tile) return;
  times.log_sum[r] = r < count ? fade.log_sum(pair, first + r) : 0.;
  times.start[r] = r < count ? static_cast<int>(fade.start(b, first + r)) : 0;
}

// Rows first .. first + count of one head, lifted, to u[r * row + i * column]; other rows are 0.
template <class T>
__device__ __forceinline__ void load_lifted(float* u, int row, int column, const TokenHeads<const T>& x,
                                            int64_t b, int64_t h, int64_t first, int count,
                                            const DeviceMap& map) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < tile; r += tile_threads / 32) {
    if (r < count)
      lift_row(u + r * row, column, head_row(x, b, first + r, h), map, lane);
    else
      for (int i = lane; i < map.width; i += 32) u[r * row + i * column] = 0;
  }
}

// The dot products that a score is made of: each is a sum over segments of equal columns of own and other.
struct ScoreSegment {
  int own, other, length;
  float sign;
};
__device__ __forceinline__ int score_dots(const DeviceMap& map) {
  if (map.first_order) return 1;
  return map.kind == MapKind::psd_sum ? map.parts * map.parts : map.parts;
}
__device__ __forceinline__ int score_segments(const DeviceMap& map) {
  return map.complex ? map.parts : 1;
}
// keys: the own rows are keys, else queries.
template <bool keys>
__device__ __forceinline__ ScoreSegment score_segment(const DeviceMap& map, int dot, int segment) {
  if (map.first_order) return {0, 0, map.width, 1.f};
  if (map.kind == MapKind::psd) return {dot * map.part, dot * map.part, map.part, 1.f};
  if (map.kind == MapKind::psd_sum)
    return {dot / map.parts * map.part, dot % map.parts * map.part, map.part, 1.f};
  const int other = segment ^ dot;
  return {segment * map.part, other * map.part, map.part, sign_times_unit(dot, keys ? other : segment)};
}

// r = one dot product of every own row (left factor) with every other row (right factor)
template <bool keys>
__device__ __forceinline__ void tile_dot(float (&r)[4][4], const float* own, const float* other,
                                         int other_stride, const DeviceMap& map, int dot) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) r[i][j] = 0;
  int offset[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) offset[j] = (thread_column() + 16 * j) * other_stride;
  for (int g = 0; g < score_segments(map); ++g) {
    const ScoreSegment s = score_segment<keys>(map, dot, g);
    if (!map.complex) {
      multiply(r, own + s.own * left_stride, other + s.other, 1, offset, s.length);
      continue;
    }
    float part[4][4] = {};
    multiply(part, own + s.own * left_stride, other + s.other, 1, offset, s.length);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) r[i][j] += s.sign * part[i][j];
  }
}

// x *= the decay between an own and an other row, and 0 where the query does not see the key.
template <bool keys>
__device__ __forceinline__ void fade_tile(float (&x)[4][4], const TileTimes& own, const TileTimes& other,
                                          int64_t own_first, int own_count, int64_t other_first,
                                          int other_count, bool decays) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int a = thread_row() + i, b = thread_column() + 16 * j;
      const int64_t query = keys ? other_first + b : own_first + a,
                    key = keys ? own_first + a : other_first + b;
      const int start = keys ? other.start[b] : own.start[a];
      if (a >= own_count || b >= other_count || key > query || start > key) {
        x[i][j] = 0;
        continue;
      }
      if (!decays) continue;
      const double log = own.log_sum[a] - other.log_sum[b];
      x[i][j] *= ChunkFade::factor(keys ? -log : log);
    }
}

}  // namespace kata::cuda
