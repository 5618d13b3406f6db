// Token embedding (ops/embedding.h has the formula).
#pragma once

#include <cstdint>

#include "ops/oracle/scalar.h"

namespace kata::oracle {

// table: [vocab, width]; returns y [ids, width].
template <class S>
std::vector<S> embedding(const std::vector<S>& table, const std::vector<int32_t>& ids, size_t width) {
  std::vector<S> y;
  for (const int32_t id : ids)
    for (size_t j = 0; j < width; ++j) y.push_back(table[static_cast<size_t>(id) * width + j]);
  return y;
}

}  // namespace kata::oracle
