// Loops over one row that several ops share: RMSNorm's sums and gradient, and the rotation of pairs.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace kata::cpu {

template <class T>
T sum_of_squares(const T* x, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] * x[j];
  return sum;
}

// sum_j dy_j w_j x_j
template <class T>
T weighted_dot(const T* dy, const T* w, const T* x, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += dy[j] * w[j] * x[j];
  return sum;
}

// The gradients of one row of RMSNorm (ops/rmsnorm.h); dx may be dy. Not inlined: inside a loop over heads
// GCC would spill, and take half as long again.
template <class T>
[[gnu::noinline]] void rmsnorm_row_backward(T* dx, T* dweight, const T* dy, const T* x, T rstd, const T* w,
                                            bool accumulate, int64_t n) {
  const T scale = rstd * rstd * rstd * weighted_dot(dy, w, x, n) / static_cast<T>(n);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) dweight[j] += dy[j] * x[j] * rstd;
  if (accumulate) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) dx[j] += rstd * dy[j] * w[j] - scale * x[j];
  } else {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) dx[j] = rstd * dy[j] * w[j] - scale * x[j];
  }
}

// y = x turned, both [pairs, 2], where y may be x; turn: [pairs, 2] = (cos, sin); direction: +1 or -1.
template <class T>
void rotate_pairs(T* y, const T* x, const T* turn, T direction, int64_t pairs) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const T c = turn[2 * i], s = direction * turn[2 * i + 1], a = x[2 * i], b = x[2 * i + 1];
    y[2 * i] = a * c - b * s;
    y[2 * i + 1] = a * s + b * c;
  }
}

// Cold: kept out of the loop that it ends.
[[noreturn, gnu::cold]] inline void outside_table(int64_t position, int64_t positions) {
  KATA_CHECK(false, "position {} of a table of {}", position, positions);
}

}  // namespace kata::cpu
