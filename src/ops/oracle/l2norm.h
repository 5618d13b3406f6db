// Rows scaled to unit length, one row at a time (ops/l2norm.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [rows, width]; returns y as x.
template <class S>
std::vector<S> l2norm(const std::vector<S>& x, size_t width, double eps) {
  using std::sqrt;
  std::vector<S> y(x.size());
  for (size_t r = 0; r < x.size(); r += width) {
    S sum = eps;
    for (size_t j = 0; j < width; ++j) sum += x[r + j] * x[r + j];
    for (size_t j = 0; j < width; ++j) y[r + j] = x[r + j] / sqrt(sum);
  }
  return y;
}

}  // namespace kata::oracle
