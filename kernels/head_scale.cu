// Heads times a number each: a warp has a head of a row.
//
// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
#include "kernels/common/elements.cuh"
#include "kernels/common/reduce.cuh"
#include "ops/head_scale.h"

namespace kata::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;
constexpr int64_t block_rows = 64;  // rows of a partial sum of ds

template <class T>
__global__ void forward_kernel(T* y, const float* s, const T* x, bool accumulate, HeadScaleSize size) {
  const int64_t i = blockIdx.x * int64_t{warps} + threadIdx.x / 32;
  if (i >= size.rows * size.heads) return;
  const int64_t row = i / size.heads, head = i % size.heads;
  const float scale = s[size.per_token ? i : head];
  const T* in = x + row * size.x_stride + head * size.width;
  T* out = y + row * size.y_stride + head * size.width;
  for (int64_t c = threadIdx.x % 32; c < size.width; c += 32)
    out[c] = from_float<T>(scale * to_float(in[c]) + (accumulate ? to_float(out[c]) : 0));
}

// A warp walks `count` rows of one head: one row where s is per token, block_rows of them where it is a
// parameter.
template <class T>
__global__ void backward_kernel(T* dx, float* ds, const T* dy, const float* s, const T* x, bool accumulate,
                                int64_t count, HeadScaleSize size) {
  const int64_t i = blockIdx.x * int64_t{warps} + threadIdx.x / 32, block = i / size.heads,
                head = i % size.heads;
  const int64_t begin = block * count, end = begin + count < size.rows ? begin + count : size.rows;
  if (begin >= size.rows) return;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) {
    const float scale = s[size.per_token ? row * size.heads + head : head];
    const T* in = x + row * size.x_stride + head * size.width;
    const T* d = dy + row * size.y_stride + head * size.width;
    T* out = dx + row * size.dx_stride + head * size.width;
    for (int64_t c = threadIdx.x % 32; c < size.width; c += 32) {
      const float g = to_float(d[c]);
      sum += g * to_float(in[c]);
      out[c] = from_float<T>(scale * g + (accumulate ? to_float(out[c]) : 0));
    }
  }
  sum = lane_sum<32>(sum);
  if (threadIdx.x % 32 == 0) ds[block * size.heads + head] = sum;
}

}  // namespace

template <class T>
void head_scale_forward(GpuStream stream, T* y, const Wide<T>* s, const T* x, bool accumulate,
                        const HeadScaleSize& size) {
  if (size.rows * size.heads == 0) return;
  forward_kernel<T>
      <<<grid(ceil_div(size.rows * size.heads, warps)), threads, 0, stream>>>(y, s, x, accumulate, size);
  check_launch("head_scale_forward");
}

int64_t head_scale_partials(const HeadScaleSize& size) {
  return std::max<int64_t>(1, ceil_div(size.rows, block_rows));
}

template <class T>
void head_scale_backward(GpuStream stream, T* dx, Wide<T>* ds, const T* dy, const Wide<T>* s, const T* x,
                         Wide<T>* partial, bool accumulate, const HeadScaleSize& size) {
  if (size.rows * size.heads == 0) return;
  const int64_t count = size.per_token ? 1 : block_rows, blocks = ceil_div(size.rows, count);
  backward_kernel<T><<<grid(ceil_div(blocks * size.heads, warps)), threads, 0, stream>>>(
      dx, size.per_token ? ds : partial, dy, s, x, accumulate, count, size);
  check_launch("head_scale_backward");
  if (!size.per_token) add_partials(stream, ds, partial, blocks, size.heads);
}

#define KATA_INSTANTIATE(T)                                                                                 \
  template void head_scale_forward<T>(GpuStream, T*, const Wide<T>*, const T*, bool, const HeadScaleSize&); \
  template void head_scale_backward<T>(GpuStream, T*, Wide<T>*, const T*, const Wide<T>*, const T*,         \
                                       Wide<T>*, bool, const HeadScaleSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
