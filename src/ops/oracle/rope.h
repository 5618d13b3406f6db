// Rotary positions, one pair at a time (ops/rope.h has the formula).
#pragma once

#include <cstdint>

#include "ops/oracle/scalar.h"

namespace kata::oracle {

struct Rope {
  size_t width, groups, rotated;
  double base;
  int64_t start;                     // position of the first token
  size_t pairs_per_frequency = 1;    // of the group's pairs, neighbours that turn alike
  std::vector<int32_t> starts = {};  // [batch, time], or empty: one document a row
};

// x: [batch, time, heads, width]; returns the rotated x.
template <class S>
std::vector<S> rope(std::vector<S> x, size_t time, size_t heads, const Rope& spec) {
  const size_t inside = spec.width / spec.groups;
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    const size_t j = i % spec.width % inside;  // place in the group
    if (j % 2 != 0 || j + 2 > spec.rotated) continue;
    const size_t token = i / (spec.width * heads), shared = 2 * spec.pairs_per_frequency;
    const int64_t document = spec.starts.empty() ? 0 : spec.starts[token];
    const double position = double(spec.start + int64_t(token % time) - document);
    const double angle = position * std::pow(spec.base, -double(j - j % shared) / double(inside));
    const S a = x[i], b = x[i + 1];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
  }
  return x;
}

}  // namespace kata::oracle
