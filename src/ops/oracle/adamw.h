// One AdamW update, one parameter at a time (ops/adamw.h has the formula).
#pragma once

#include "ops/oracle/scalar.h"

namespace kata::oracle {

struct AdamW {
  double lr, beta1, beta2, eps, weight_decay, gradient_scale;
};

// p, m and v are updated; step counts from 1.
inline void adamw(std::vector<double>& p, std::vector<double>& m, std::vector<double>& v,
                  const std::vector<double>& gradient, const AdamW& s, int step) {
  for (size_t i = 0; i < p.size(); ++i) {
    const double g = s.gradient_scale * gradient[i];
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * g;
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * g * g;
    const double mean = m[i] / (1 - std::pow(s.beta1, step));
    const double square = v[i] / (1 - std::pow(s.beta2, step));
    p[i] -= s.lr * (mean / (std::sqrt(square) + s.eps) + s.weight_decay * p[i]);
  }
}

}  // namespace kata::oracle
