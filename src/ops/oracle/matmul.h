// Linear map, one sum at a time (ops/matmul.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [m, k], w: [n, k]; returns x w^T [m, n].
template <class S>
std::vector<S> matmul(const std::vector<S>& x, const std::vector<S>& w, size_t k) {
  const size_t m = x.size() / k, n = w.size() / k;
  std::vector<S> y(m * n);
  for (size_t r = 0; r < m; ++r)
    for (size_t c = 0; c < n; ++c)
      for (size_t j = 0; j < k; ++j) y[r * n + c] += x[r * k + j] * w[c * k + j];
  return y;
}

}  // namespace kata::oracle
