// Sums in a fixed order: over a group of lanes, and over the partial rows that blocks left.
#pragma once

#include "kernels/common/launch.h"

namespace kata::cuda {

// The sum over `lanes` neighbouring lanes (a power of two), in all of them.
template <int lanes>
__device__ __forceinline__ float lane_sum(float x) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
template <int lanes>
__device__ __forceinline__ float lane_max(float x) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// Sums per column over a block whose groups of lanes hold them, lane by lane, in two steps: groups of one
// warp first, then the warps, each in a fixed order. First row[column + i] = the sum of sums[i] over the
// groups of this warp, row being the warp's own in shared memory; whole warps call it, with the lane's
// column.
template <int lanes, int N>
__device__ __forceinline__ void warp_columns(float* row, const float (&sums)[N], int64_t column,
                                             int64_t width) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    float sum = sums[i];
#pragma unroll
    for (int step = lanes; step < 32; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (static_cast<int>(threadIdx.x) % 32 < lanes && column < width) row[column + i] = sum;
  }
}
// Then to[c] = the sum over warps of rows[warp][c]; rows: [warps][width] in shared memory.
template <int warps>
__device__ __forceinline__ void block_columns(float* to, const float* rows, int64_t width) {
  __syncthreads();
  for (int64_t c = threadIdx.x; c < width; c += 32 * warps) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += rows[w * width + c];
    to[c] = sum;
  }
}

// shared[i] becomes the sum of shared[0 .. i]; a block of `threads` threads, one a number.
template <int threads>
__device__ __forceinline__ void running_sum(int32_t* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  for (int step = 1; step < threads; step *= 2) {
    const int32_t before = thread >= step ? shared[thread - step] : 0;
    __syncthreads();
    shared[thread] += before;
    __syncthreads();
  }
}

// to[place(c)] += the sum over rows of partial[row][c]. `shares` threads share a column: each takes every
// shares-th row, several loads at once, and their sums are added in order.
inline constexpr int shares = 32;
template <class Place>
__global__ void add_partials_kernel(float* to, const float* partial, int64_t rows, int64_t columns,
                                    Place place) {
  __shared__ float sums[shares][32];
  const int64_t c = blockIdx.x * int64_t{32} + threadIdx.x;
  float sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (int64_t r = threadIdx.y; r < rows; r += shares) sum += partial[r * columns + c];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= columns) return;
  for (int i = 1; i < shares; ++i) sum += sums[i][threadIdx.x];
  to[place(c)] += sum;
}

struct SamePlace {
  __device__ int64_t operator()(int64_t c) const { return c; }
};

template <class Place = SamePlace>
void add_partials(cudaStream_t stream, float* to, const float* partial, int64_t rows, int64_t columns,
                  Place place = {}) {
  add_partials_kernel<<<grid(ceil_div(columns, 32)), dim3(32, shares), 0, stream>>>(to, partial, rows,
                                                                                    columns, place);
  check_launch("add_partials");
}

}  // namespace kata::cuda
