// Rotary positions, one pair at a time (ops/rope.h has the formula).
#pragma once

#include <cstdint>

#include "ops/oracle/scalar.h"

namespace kata::oracle {

struct Rope {
  size_t width, groups, rotated;
  double base;
  int64_t start;  // position of the first token
};

// x: [batch, time, heads, width]; returns the rotated x.
template <class S>
std::vector<S> rope(std::vector<S> x, size_t time, size_t heads, const Rope& spec) {
  const size_t inside = spec.width / spec.groups;
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    const size_t j = i % spec.width % inside;  // place in the group
    if (j % 2 != 0 || j + 2 > spec.rotated) continue;
    const double position = double(spec.start) + double(i / (spec.width * heads) % time);
    const double angle = position * std::pow(spec.base, -double(j) / double(inside));
    const S a = x[i], b = x[i + 1];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

}  // namespace kata::oracle
