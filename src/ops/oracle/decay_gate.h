// The decay of a head, one element at a time (ops/decay_gate.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

template <class S>
struct DecayGate {
  std::vector<S> log_decay, dt;
};

// x: [rows, heads]; a_log, dt_bias: [heads].
template <class S>
DecayGate<S> decay_gate(const std::vector<S>& x, const std::vector<S>& a_log, const std::vector<S>& dt_bias) {
  using std::exp;
  DecayGate<S> result;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t h = i % a_log.size();
    const S z = x[i] + dt_bias[h];
    // Far to the left log(1 + exp(z)) would round to 0.
    const S dt = real(z) < -37 ? exp(z) : softplus(z);
    result.dt.push_back(dt);
    result.log_decay.push_back(-exp(a_log[h]) * dt);
  }
  return result;
}

}  // namespace kata::oracle
