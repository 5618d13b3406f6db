// The logistic function, an element a thread: gates are a few numbers a token.
//
// Floor: memory. Forward reads x and writes y; backward reads dy and y and writes dx.
#include "kernels/common/elements.cuh"
#include "kernels/common/launch.h"
#include "ops/sigmoid.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;

template <class T>
__global__ void forward_kernel(float* y, const T* x, int64_t rows, int64_t width, int64_t x_stride) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  if (i >= rows * width) return;
  y[i] = 1 / (1 + expf(-to_float(x[i / width * x_stride + i % width])));
}

template <class T>
__global__ void backward_kernel(T* dx, const float* dy, const float* y, int64_t rows, int64_t width,
                                int64_t dx_stride) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  if (i >= rows * width) return;
  dx[i / width * dx_stride + i % width] = from_float<T>(dy[i] * y[i] * (1 - y[i]));
}

}  // namespace

template <class T>
void sigmoid_forward(GpuStream stream, Wide<T>* y, const T* x, int64_t rows, int64_t width,
                     int64_t x_stride) {
  if (rows * width == 0) return;
  forward_kernel<T>
      <<<grid(ceil_div(rows * width, threads)), threads, 0, stream>>>(y, x, rows, width, x_stride);
  check_launch("sigmoid_forward");
}

template <class T>
void sigmoid_backward(GpuStream stream, T* dx, const Wide<T>* dy, const Wide<T>* y, int64_t rows,
                      int64_t width, int64_t dx_stride) {
  if (rows * width == 0) return;
  backward_kernel<T>
      <<<grid(ceil_div(rows * width, threads)), threads, 0, stream>>>(dx, dy, y, rows, width, dx_stride);
  check_launch("sigmoid_backward");
}

#define KATA_INSTANTIATE(T)                                                                   \
  template void sigmoid_forward<T>(GpuStream, Wide<T>*, const T*, int64_t, int64_t, int64_t); \
  template void sigmoid_backward<T>(GpuStream, T*, const Wide<T>*, const Wide<T>*, int64_t, int64_t, int64_t);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
