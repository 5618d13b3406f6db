#include "ops/swiglu.h"

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_elements = 16384;  // of y, per unit

int64_t block_rows(int64_t width) {
  return ceil_div(block_elements, width > 0 ? width : 1);
}

}  // namespace

template <class T>
void swiglu_forward(T* y, const T* x, int64_t rows, int64_t width) {
  parallel_blocks(rows, block_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *gate = x + r * 2 * width, *up = gate + width;
      T* out = y + r * width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) out[j] = silu(gate[j]) * up[j];
    }
  });
}

template <class T>
void swiglu_backward(T* dx, const T* dy, const T* x, int64_t rows, int64_t width) {
  parallel_blocks(rows, block_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *gate = x + r * 2 * width, *up = gate + width, *g = dy + r * width;
      T *dgate = dx + r * 2 * width, *dup = dgate + width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        const T z = gate[j], s = sigmoid(z), active = z * s;
        const T d = g[j] * up[j] * (s + active * (1 - s));
        dup[j] = g[j] * active;
        dgate[j] = d;
      }
    }
  });
}

#define KATA_INSTANTIATE(T)                                        \
  template void swiglu_forward<T>(T*, const T*, int64_t, int64_t); \
  template void swiglu_backward<T>(T*, const T*, const T*, int64_t, int64_t);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
