// An output gate, one element at a time (ops/silu_gate.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

template <class S>
std::vector<S> silu_gate(const std::vector<S>& x, const std::vector<S>& g) {
  std::vector<S> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * silu(g[i]));
  return y;
}

}  // namespace kata::oracle
