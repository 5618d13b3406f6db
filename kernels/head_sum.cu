// The sum over heads, a pack of a row a thread, heads in order.
//
// Floor: memory. Reads x and writes y.
#include "kernels/common/launch.h"
#include "kernels/common/rows.cuh"
#include "ops/head_sum.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;

template <class T, int N>
__global__ void sum_kernel(T* y, const T* x, HeadSumSize size) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * N;
  if (i >= size.rows * size.width) return;
  const int64_t row = i / size.width, c = i % size.width;
  float sum[N] = {}, v[N];
  for (int64_t h = 0; h < size.heads; ++h) {
    load<N>(v, x + (row * size.heads + h) * size.width + c);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += v[k];
  }
  store<N>(y + row * size.y_stride + c, sum);
}

}  // namespace

template <class T>
void head_sum(GpuStream stream, T* y, const T* x, const HeadSumSize& size) {
  if (size.rows * size.width == 0) return;
  with_pack<T>(packs<T>({y, x}, {size.width, size.y_stride}), [&]<int N>() {
    sum_kernel<T, N><<<grid(ceil_div(size.rows * size.width, threads * N)), threads, 0, stream>>>(y, x, size);
  });
  check_launch("head_sum");
}

template void head_sum<float>(GpuStream, float*, const float*, const HeadSumSize&);
template void head_sum<bf16>(GpuStream, bf16*, const bf16*, const HeadSumSize&);

}  // namespace kata::cuda
