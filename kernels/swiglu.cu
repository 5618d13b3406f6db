// SwiGLU, a pack of gate and the pack of up that belongs to it a thread.
//
// Floor: memory. Forward reads x and writes y, half as wide; backward reads dy and x and writes dx.
#include "kernels/common/launch.h"
#include "kernels/common/rows.cuh"
#include "ops/swiglu.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;

template <class T, int N>
__global__ void forward_kernel(T* y, const T* x, int64_t rows, int64_t width) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * N;
  if (i >= rows * width) return;
  const int64_t row = i / width, at = row * 2 * width + i - row * width;
  float gate[N], up[N];
  load<N>(gate, x + at);
  load<N>(up, x + at + width);
#pragma unroll
  for (int k = 0; k < N; ++k) up[k] *= gate[k] / (1 + __expf(-gate[k]));
  store<N>(y + i, up);
}

template <class T, int N>
__global__ void backward_kernel(T* dx, const T* dy, const T* x, int64_t rows, int64_t width) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * N;
  if (i >= rows * width) return;
  const int64_t row = i / width, at = row * 2 * width + i - row * width;
  float gate[N], up[N], d[N];
  load<N>(gate, x + at);
  load<N>(up, x + at + width);
  load<N>(d, dy + i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float s = 1 / (1 + __expf(-gate[k])), silu = gate[k] * s;
    const float dgate = d[k] * up[k] * (s + silu * (1 - s));
    up[k] = d[k] * silu;
    gate[k] = dgate;
  }
  store<N>(dx + at, gate);
  store<N>(dx + at + width, up);
}

}  // namespace

template <class T>
void swiglu_forward(GpuStream stream, T* y, const T* x, int64_t rows, int64_t width) {
  if (rows * width == 0) return;
  with_pack<T>(packs<T>({y, x}, {width}), [&]<int N>() {
    forward_kernel<T, N>
        <<<grid(ceil_div(rows * width, threads * N)), threads, 0, stream>>>(y, x, rows, width);
  });
  check_launch("swiglu_forward");
}

template <class T>
void swiglu_backward(GpuStream stream, T* dx, const T* dy, const T* x, int64_t rows, int64_t width) {
  if (rows * width == 0) return;
  with_pack<T>(packs<T>({dx, dy, x}, {width}), [&]<int N>() {
    backward_kernel<T, N>
        <<<grid(ceil_div(rows * width, threads * N)), threads, 0, stream>>>(dx, dy, x, rows, width);
  });
  check_launch("swiglu_backward");
}

#define KATA_INSTANTIATE(T)                                                   \
  template void swiglu_forward<T>(GpuStream, T*, const T*, int64_t, int64_t); \
  template void swiglu_backward<T>(GpuStream, T*, const T*, const T*, int64_t, int64_t);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
