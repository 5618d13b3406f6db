// A row times SiLU of its gate, a pack a thread.
//
// Floor: memory. Forward reads x and g and writes y; backward reads dy, x and g and writes dx and dg.
#include "kernels/common/launch.h"
#include "kernels/common/rows.cuh"
#include "ops/silu_gate.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;

template <class T, int N>
__global__ void forward_kernel(T* y, const T* x, const T* g, SiluGateSize size) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * N;
  if (i >= size.rows * size.width) return;
  const int64_t row = i / size.width, c = i % size.width;
  float v[N], gate[N];
  load<N>(v, x + row * size.x_stride + c);
  load<N>(gate, g + row * size.g_stride + c);
#pragma unroll
  for (int k = 0; k < N; ++k) v[k] *= gate[k] / (1 + __expf(-gate[k]));
  store<N>(y + row * size.y_stride + c, v);
}

template <class T, int N>
__global__ void backward_kernel(T* dx, T* dg, const T* dy, const T* x, const T* g, SiluGateSize size) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * N;
  if (i >= size.rows * size.width) return;
  const int64_t row = i / size.width, c = i % size.width;
  float v[N], gate[N], d[N];
  load<N>(v, x + row * size.x_stride + c);
  load<N>(gate, g + row * size.g_stride + c);
  load<N>(d, dy + row * size.y_stride + c);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float s = 1 / (1 + __expf(-gate[k])), silu = gate[k] * s;
    gate[k] = d[k] * v[k] * (s + silu * (1 - s));
    d[k] *= silu;
  }
  store<N>(dx + row * size.dx_stride + c, d);
  store<N>(dg + row * size.dg_stride + c, gate);
}

}  // namespace

template <class T>
void silu_gate_forward(GpuStream stream, T* y, const T* x, const T* g, const SiluGateSize& size) {
  if (size.rows * size.width == 0) return;
  with_pack<T>(packs<T>({y, x, g}, {size.width, size.y_stride, size.x_stride, size.g_stride}), [&]<int N>() {
    forward_kernel<T, N>
        <<<grid(ceil_div(size.rows * size.width, threads * N)), threads, 0, stream>>>(y, x, g, size);
  });
  check_launch("silu_gate_forward");
}

template <class T>
void silu_gate_backward(GpuStream stream, T* dx, T* dg, const T* dy, const T* x, const T* g,
                        const SiluGateSize& size) {
  if (size.rows * size.width == 0) return;
  const bool packed = packs<T>({dx, dg, dy, x, g}, {size.width, size.y_stride, size.x_stride, size.g_stride,
                                                    size.dx_stride, size.dg_stride});
  with_pack<T>(packed, [&]<int N>() {
    backward_kernel<T, N>
        <<<grid(ceil_div(size.rows * size.width, threads * N)), threads, 0, stream>>>(dx, dg, dy, x, g, size);
  });
  check_launch("silu_gate_backward");
}

#define KATA_INSTANTIATE(T)                                                                   \
  template void silu_gate_forward<T>(GpuStream, T*, const T*, const T*, const SiluGateSize&); \
  template void silu_gate_backward<T>(GpuStream, T*, T*, const T*, const T*, const T*, const SiluGateSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
