// SwiGLU, one element at a time (ops/swiglu.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [rows, 2 width] = (gate, up); returns y [rows, width].
template <class S>
std::vector<S> swiglu(const std::vector<S>& x, size_t width) {
  std::vector<S> y(x.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t row = i / width, j = i % width;
    y[i] = silu(x[row * 2 * width + j]) * x[row * 2 * width + width + j];
  }
  return y;
}

}  // namespace kata::oracle
