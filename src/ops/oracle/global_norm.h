// Length of a vector, summed smallest squares first (ops/global_norm.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

inline double global_norm(const std::vector<double>& x) {
  std::vector<double> squares;
  for (const double value : x) squares.push_back(value * value);
  std::sort(squares.begin(), squares.end());
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

}  // namespace kata::oracle
