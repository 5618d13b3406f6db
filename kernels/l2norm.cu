// Rows scaled to unit length: a group of lanes has a row, read in 16-byte packs.
//
// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
#include "kernels/common/reduce.cuh"
#include "kernels/common/rows.cuh"
#include "ops/l2norm.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;

template <class T, int N, int lanes>
__global__ void forward_kernel(T* y, float* rnorm, const T* x, float eps, L2NormSize size) {
  const int64_t row = (blockIdx.x * int64_t{threads} + threadIdx.x) / lanes;
  if (row >= size.rows * size.inner) return;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const RowPlace at = row_place(row, size);
  float squares = 0, v[N];
  for (int64_t c = lane * N; c < size.width; c += lanes * N) {
    load<N>(v, x + at.x + c);
#pragma unroll
    for (int i = 0; i < N; ++i) squares += v[i] * v[i];
  }
  const float scale = rsqrtf(lane_sum<lanes>(squares) + eps);
  if (lane == 0) rnorm[row] = scale;
  for (int64_t c = lane * N; c < size.width; c += lanes * N) {
    load<N>(v, x + at.x + c);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= scale;
    store<N>(y + at.y + c, v);
  }
}

template <class T, int N, int lanes>
__global__ void backward_kernel(T* dx, const T* dy, const T* x, const float* rnorm, bool accumulate,
                                L2NormSize size) {
  const int64_t row = (blockIdx.x * int64_t{threads} + threadIdx.x) / lanes;
  if (row >= size.rows * size.inner) return;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const RowPlace at = row_place(row, size);
  const float scale = rnorm[row];
  float dot = 0, v[N], d[N];
  for (int64_t c = lane * N; c < size.width; c += lanes * N) {
    load<N>(v, x + at.x + c);
    load<N>(d, dy + at.y + c);
#pragma unroll
    for (int i = 0; i < N; ++i) dot += (v[i] * scale) * d[i];
  }
  dot = lane_sum<lanes>(dot);
  for (int64_t c = lane * N; c < size.width; c += lanes * N) {
    float old[N] = {};
    load<N>(v, x + at.x + c);
    load<N>(d, dy + at.y + c);
    if (accumulate) load<N>(old, dx + at.x + c);
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = old[i] + scale * (d[i] - (v[i] * scale) * dot);
    store<N>(dx + at.x + c, d);
  }
}

}  // namespace

template <class T>
void l2norm_forward(GpuStream stream, T* y, Wide<T>* rnorm, const T* x, float eps, const L2NormSize& size) {
  if (size.rows * size.inner == 0) return;
  with_lanes<T>(packs<T>({y, x}, {size.x_stride, size.y_stride, size.width}), size.width,
                [&]<int N, int lanes>() {
                  forward_kernel<T, N, lanes>
                      <<<grid(ceil_div(size.rows * size.inner, threads / lanes)), threads, 0, stream>>>(
                          y, rnorm, x, eps, size);
                });
  check_launch("l2norm_forward");
}

template <class T>
void l2norm_backward(GpuStream stream, T* dx, const T* dy, const T* x, const Wide<T>* rnorm, bool accumulate,
                     const L2NormSize& size) {
  if (size.rows * size.inner == 0) return;
  with_lanes<T>(packs<T>({dx, dy, x}, {size.x_stride, size.y_stride, size.width}), size.width,
                [&]<int N, int lanes>() {
                  backward_kernel<T, N, lanes>
                      <<<grid(ceil_div(size.rows * size.inner, threads / lanes)), threads, 0, stream>>>(
                          dx, dy, x, rnorm, accumulate, size);
                });
  check_launch("l2norm_backward");
}

#define KATA_INSTANTIATE(T)                                                                     \
  template void l2norm_forward<T>(GpuStream, T*, Wide<T>*, const T*, float, const L2NormSize&); \
  template void l2norm_backward<T>(GpuStream, T*, const T*, const T*, const Wide<T>*, bool,     \
                                   const L2NormSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
