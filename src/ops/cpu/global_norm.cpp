#include "ops/global_norm.h"

#include <cmath>

#include "base/parallel.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_elements = 16384;

template <class T>
double sum_of_squares(const T* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

int64_t global_norm_partials(int64_t n) {
  return ceil_div(n, block_elements);
}

template <class T>
double global_norm(const T* x, int64_t n, double* partial) {
  parallel_blocks(n, block_elements, [&](int64_t begin, int64_t end) {
    partial[begin / block_elements] = sum_of_squares(x + begin, end - begin);
  });
  double sum = 0;
  for (int64_t b = 0; b < global_norm_partials(n); ++b) sum += partial[b];
  return std::sqrt(sum);
}

#define KATA_INSTANTIATE(T) template double global_norm<T>(const T*, int64_t, double*);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
