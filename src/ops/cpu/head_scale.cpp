#include "ops/head_scale.h"

#include <algorithm>

#include "base/parallel.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 64;  // rows per unit; fixed, so that sums do not depend on the thread count

template <class T>
void scale_head(T* y, const T* x, T s, bool accumulate, int64_t n) {
  if (accumulate) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] += s * x[j];
  } else {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) y[j] = s * x[j];
  }
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += a[j] * b[j];
  return sum;
}

}  // namespace

template <class T>
void head_scale_forward(T* y, const T* s, const T* x, bool accumulate, const HeadScaleSize& size) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* scales = size.per_token ? s + r * size.heads : s;
      for (int64_t h = 0; h < size.heads; ++h)
        scale_head(y + r * size.y_stride + h * size.width, x + r * size.x_stride + h * size.width, scales[h],
                   accumulate, size.width);
    }
  });
}

int64_t head_scale_partials(const HeadScaleSize& size) {
  return ceil_div(size.rows, block_rows);
}

template <class T>
void head_scale_backward(T* dx, T* ds, const T* dy, const T* s, const T* x, T* partial, bool accumulate,
                         const HeadScaleSize& size) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    T* sums = size.per_token ? nullptr : partial + begin / block_rows * size.heads;
    if (sums) std::fill_n(sums, size.heads, T(0));
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < size.heads; ++h) {
        const T* d = dy + r * size.y_stride + h * size.width;
        const T along = dot(d, x + r * size.x_stride + h * size.width, size.width);
        if (sums)
          sums[h] += along;
        else
          ds[r * size.heads + h] = along;
        scale_head(dx + r * size.dx_stride + h * size.width, d, size.per_token ? s[r * size.heads + h] : s[h],
                   accumulate, size.width);
      }
  });
  if (size.per_token) return;
  for (int64_t b = 0; b < head_scale_partials(size); ++b)
    for (int64_t h = 0; h < size.heads; ++h) ds[h] += partial[b * size.heads + h];
}

#define KATA_INSTANTIATE(T)                                                                \
  template void head_scale_forward<T>(T*, const T*, const T*, bool, const HeadScaleSize&); \
  template void head_scale_backward<T>(T*, T*, const T*, const T*, const T*, T*, bool, const HeadScaleSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
