#include "ops/l2norm.h"

#include <cmath>

#include "base/parallel.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;  // groups per unit

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += a[j] * b[j];
  return sum;
}

// body(row, offset in x, offset in y) for every row, in parallel.
template <class Body>
void for_rows(const L2NormSize& size, Body&& body) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group)
      for (int64_t i = 0; i < size.inner; ++i)
        body(group * size.inner + i, group * size.x_stride + i * size.width,
             group * size.y_stride + i * size.width);
  });
}

}  // namespace

template <class T>
void l2norm_forward(T* y, T* rnorm, const T* x, T eps, const L2NormSize& size) {
  for_rows(size, [&](int64_t r, int64_t at_x, int64_t at_y) {
    const T* xr = x + at_x;
    T* yr = y + at_y;
    const T scale = 1 / std::sqrt(dot(xr, xr, size.width) + eps);
    rnorm[r] = scale;
#pragma omp simd
    for (int64_t j = 0; j < size.width; ++j) yr[j] = xr[j] * scale;
  });
}

template <class T>
void l2norm_backward(T* dx, const T* dy, const T* x, const T* rnorm, bool accumulate,
                     const L2NormSize& size) {
  for_rows(size, [&](int64_t r, int64_t at_x, int64_t at_y) {
    const T *xr = x + at_x, *dyr = dy + at_y;
    T* dxr = dx + at_x;
    const T scale = rnorm[r];
    // Multiplied in this order, huge and tiny rows neither overflow nor vanish: x scale is at most 1.
    const T along = dot(dyr, xr, size.width) * scale * scale;
    if (accumulate) {
#pragma omp simd
      for (int64_t j = 0; j < size.width; ++j) dxr[j] += scale * (dyr[j] - xr[j] * along);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < size.width; ++j) dxr[j] = scale * (dyr[j] - xr[j] * along);
    }
  });
}

#define KATA_INSTANTIATE(T)                                                \
  template void l2norm_forward<T>(T*, T*, const T*, T, const L2NormSize&); \
  template void l2norm_backward<T>(T*, const T*, const T*, const T*, bool, const L2NormSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
