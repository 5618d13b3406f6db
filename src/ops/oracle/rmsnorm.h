// RMSNorm, one row at a time (ops/rmsnorm.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [rows, width], weight: [width]; returns y [rows, width].
template <class S>
std::vector<S> rmsnorm(const std::vector<S>& x, const std::vector<S>& weight, double eps) {
  using std::sqrt;
  const size_t width = weight.size(), rows = x.size() / width;
  std::vector<S> y(x.size());
  for (size_t r = 0; r < rows; ++r) {
    S sum = 0;
    for (size_t j = 0; j < width; ++j) sum += x[r * width + j] * x[r * width + j];
    const S rstd = S(1) / sqrt(sum / double(width) + eps);
    for (size_t j = 0; j < width; ++j) y[r * width + j] = x[r * width + j] * rstd * weight[j];
  }
  return y;
}

}  // namespace kata::oracle
