// The logistic function, one element at a time (ops/sigmoid.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

template <class S>
std::vector<S> sigmoid(const std::vector<S>& x) {
  std::vector<S> y;
  for (const S& value : x) y.push_back(sigmoid(value));
  return y;
}

}  // namespace kata::oracle
