// Length and sum of a flat range, in double, in two stages: fixed blocks, then their partial sums in order.
//
// Floor: memory. x is read once.
#include "kernels/common/elements.cuh"
#include "kernels/common/launch.h"
#include "ops/global_norm.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;
constexpr int64_t most_blocks = 1056;

// The sum of the block's values, in thread 0, in an order that depends on nothing.
__device__ double block_sum(double value) {
  __shared__ double shared[threads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

template <bool squares>
__global__ void partial_kernel(double* partial, const float* x, int64_t n, bool packed) {
  const int64_t stride = int64_t{gridDim.x} * threads, first = blockIdx.x * int64_t{threads} + threadIdx.x;
  double sum = 0;
  const auto add = [&](float value) {
    const double wide = value;
    sum += squares ? wide * wide : wide;
  };
  const int64_t packs = packed ? n / 4 : 0;
  for (int64_t i = first; i < packs; i += stride) {
    float v[4];
    load<4>(v, x + 4 * i);
    for (const float value : v) add(value);
  }
  for (int64_t i = 4 * packs + first; i < n; i += stride) add(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <bool squares>
__global__ void total_kernel(double* total, const double* partial, int64_t partials) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < partials; i += threads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *total = squares ? sqrt(sum) : sum;
}

template <bool squares>
void two_stages(GpuStream stream, double* total, const float* x, int64_t n, double* partial) {
  const int64_t blocks = sum_partials(n);
  partial_kernel<squares><<<grid(blocks), threads, 0, stream>>>(partial, x, n, packs<float>({x}, {}));
  total_kernel<squares><<<1, threads, 0, stream>>>(total, partial, blocks);
  check_launch("global_norm");
}

}  // namespace

int64_t sum_partials(int64_t n) {
  return std::clamp<int64_t>(ceil_div(n, int64_t{threads} * 16), 1, most_blocks);
}

void global_norm(GpuStream stream, double* norm, const float* x, int64_t n, double* partial) {
  two_stages<true>(stream, norm, x, n, partial);
}
void sum(GpuStream stream, double* total, const float* x, int64_t n, double* partial) {
  two_stages<false>(stream, total, x, n, partial);
}

}  // namespace kata::cuda
