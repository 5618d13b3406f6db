#include "ops/sigmoid.h"

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_elements = 16384;  // per unit

int64_t block_rows(int64_t width) {
  return ceil_div(block_elements, width > 0 ? width : 1);
}

}  // namespace

template <class T>
void sigmoid_forward(T* y, const T* x, int64_t rows, int64_t width, int64_t x_stride) {
  parallel_blocks(rows, block_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* in = x + r * x_stride;
      T* out = y + r * width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) out[j] = sigmoid(in[j]);
    }
  });
}

template <class T>
void sigmoid_backward(T* dx, const T* dy, const T* y, int64_t rows, int64_t width, int64_t dx_stride) {
  parallel_blocks(rows, block_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *g = dy + r * width, *s = y + r * width;
      T* out = dx + r * dx_stride;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) out[j] = g[j] * s[j] * (1 - s[j]);
    }
  });
}

#define KATA_INSTANTIATE(T)                                                  \
  template void sigmoid_forward<T>(T*, const T*, int64_t, int64_t, int64_t); \
  template void sigmoid_backward<T>(T*, const T*, const T*, int64_t, int64_t, int64_t);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
