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

// to[c] += the sum over rows of partial[row][c], rows in order.
static __global__ void add_partials_kernel(float* to, const float* partial, int64_t rows, int64_t columns) {
  const int64_t c = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (c >= columns) return;
  float sum = 0;
  for (int64_t r = 0; r < rows; ++r) sum += partial[r * columns + c];
  to[c] += sum;
}
inline void add_partials(cudaStream_t stream, float* to, const float* partial, int64_t rows,
                         int64_t columns) {
  constexpr int threads = 64;
  add_partials_kernel<<<grid(ceil_div(columns, threads)), threads, 0, stream>>>(to, partial, rows, columns);
  check_launch("add_partials");
}

}  // namespace kata::cuda
