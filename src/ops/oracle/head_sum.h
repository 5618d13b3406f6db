// The sum over heads, one element at a time (ops/head_sum.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [rows, heads, width]; returns [rows, width].
template <class S>
std::vector<S> head_sum(const std::vector<S>& x, size_t heads, size_t width) {
  std::vector<S> y(x.size() / heads);
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t h = 0; h < heads; ++h) y[i] += x[(i / width * heads + h) * width + i % width];
  return y;
}

}  // namespace kata::oracle
