// Loss of a linear read-out, one row at a time (ops/cross_entropy.h has the formula).
#pragma once

#include <cstdint>

#include "ops/oracle/matmul.h"

namespace kata::oracle {

// x: [rows, width], table: [vocab, width], targets: [rows], -1 = unlabelled; returns losses [rows].
template <class S>
std::vector<S> cross_entropy(const std::vector<S>& x, const std::vector<S>& table,
                             const std::vector<int32_t>& targets, size_t width) {
  const size_t vocab = table.size() / width;
  const std::vector<S> z = matmul(x, table, width);
  std::vector<S> losses(targets.size());
  for (size_t r = 0; r < targets.size(); ++r)
    if (targets[r] >= 0)
      losses[r] = log_sum_exp(&z[r * vocab], vocab) - z[r * vocab + static_cast<size_t>(targets[r])];
  return losses;
}

}  // namespace kata::oracle
