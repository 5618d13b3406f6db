// Every head times a number of its own, one element at a time (ops/head_scale.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// x: [rows, heads, width]; s: [rows, heads] or [heads]; returns s x.
template <class S>
std::vector<S> head_scale(const std::vector<S>& s, const std::vector<S>& x, size_t width) {
  std::vector<S> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(s[i / width % s.size()] * x[i]);
  return y;
}

}  // namespace kata::oracle
