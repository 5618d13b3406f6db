#include "ops/rmsnorm.h"

#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/row_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;  // groups per unit; fixed, so that sums do not depend on the thread count

}  // namespace

template <class T>
void rmsnorm_forward(T* y, T* rstd, const T* x, const T* weight, T eps, const RmsNormSize& size) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin * size.inner; r < end * size.inner; ++r) {
      const int64_t group = r / size.inner, inside = r % size.inner;
      const T* xr = x + group * size.x_stride + inside * size.width;
      T* yr = y + group * size.y_stride + inside * size.width;
      const T scale = 1 / std::sqrt(sum_of_squares(xr, size.width) / static_cast<T>(size.width) + eps);
      rstd[r] = scale;
#pragma omp simd
      for (int64_t j = 0; j < size.width; ++j) yr[j] = xr[j] * scale * weight[j];
    }
  });
}

int64_t rmsnorm_partials(const RmsNormSize& size) {
  return ceil_div(size.rows, block_rows);
}

template <class T>
void rmsnorm_backward(T* dx, T* dweight, const T* dy, const T* x, const T* rstd, const T* weight, T* partial,
                      bool accumulate, const RmsNormSize& size) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    T* sum = partial + begin / block_rows * size.width;
    for (int64_t j = 0; j < size.width; ++j) sum[j] = 0;
    for (int64_t r = begin * size.inner; r < end * size.inner; ++r) {
      const int64_t group = r / size.inner, inside = r % size.inner;
      const int64_t at_x = group * size.x_stride + inside * size.width;
      const int64_t at_y = group * size.y_stride + inside * size.width;
      rmsnorm_row_backward(dx + at_x, sum, dy + at_y, x + at_x, rstd[r], weight, accumulate, size.width);
    }
  });
  for (int64_t b = 0; b < rmsnorm_partials(size); ++b)
    for (int64_t j = 0; j < size.width; ++j) dweight[j] += partial[b * size.width + j];
}

#define KATA_INSTANTIATE(T)                                                                   \
  template void rmsnorm_forward<T>(T*, T*, const T*, const T*, T, const RmsNormSize&);        \
  template void rmsnorm_backward<T>(T*, T*, const T*, const T*, const T*, const T*, T*, bool, \
                                    const RmsNormSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
