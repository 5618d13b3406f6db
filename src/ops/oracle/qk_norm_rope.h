// Norm and rotation of queries and keys, one after the other (ops/qk_norm_rope.h has the formula).
#pragma once

#include "ops/oracle/rmsnorm.h"
#include "ops/oracle/rope.h"

namespace kata::oracle {

// x: [batch, time, heads, width], of which the first q_heads are queries; returns y of the same shape.
template <class S>
std::vector<S> qk_norm_rope(const std::vector<S>& x, const std::vector<S>& q_weight,
                            const std::vector<S>& k_weight, size_t time, size_t heads, size_t q_heads,
                            const Rope& spec, double eps) {
  std::vector<S> normed = rmsnorm(x, q_weight, eps);
  const std::vector<S> as_keys = rmsnorm(x, k_weight, eps);
  for (size_t i = 0; i < x.size(); ++i)
    if (i / spec.width % heads >= q_heads) normed[i] = as_keys[i];
  return rope(normed, time, heads, spec);
}

}  // namespace kata::oracle
