// The few scalar functions of the oracle, for double and for std::complex<double>.
//
// The oracle is instantiated with complex numbers so that Im f(x + i h) / h with h = 1e-30 is the exact
// derivative (no step size to tune). That holds for analytic functions, so every branch looks at the real
// part and sums of squares are x*x, never norms.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

namespace kata::oracle {

using Complex = std::complex<double>;

inline double real(double x) {
  return x;
}
inline double real(const Complex& x) {
  return x.real();
}

template <class S>
S max0(const S& x) {  // max(x, 0)
  return real(x) > 0 ? x : S(0);
}
template <class S>
S sigmoid(const S& x) {
  using std::exp;
  if (real(x) >= 0) return S(1) / (S(1) + exp(-x));
  const S e = exp(x);
  return e / (S(1) + e);
}
template <class S>
S silu(const S& x) {
  return x * sigmoid(x);
}
template <class S>
S softplus(const S& x) {
  using std::exp;
  using std::log;
  if (real(x) > 30) return x;
  return log(S(1) + exp(x));
}
template <class S>
S log_sum_exp(const S* x, size_t n) {
  using std::exp;
  using std::log;
  double top = real(x[0]);
  for (size_t i = 1; i < n; ++i) top = std::max(top, real(x[i]));
  S sum = 0;
  for (size_t i = 0; i < n; ++i) sum += exp(x[i] - top);
  return log(sum) + top;
}

}  // namespace kata::oracle
