// Derivatives of the oracle, exact to machine precision: Im f(x + i h) / h with h = 1e-30.
#pragma once

#include <complex>
#include <functional>
#include <vector>

namespace kata::test {

using Complex = std::complex<double>;
// A scalar function of several named inputs, written on the oracle and instantiated with complex numbers.
using ComplexInputs = std::vector<std::vector<Complex>>;
using ComplexFunction = std::function<Complex(const ComplexInputs&)>;

// d f / d inputs[which][j] for every j.
inline std::vector<double> complex_step(const ComplexFunction& f,
                                        const std::vector<std::vector<double>>& inputs, size_t which) {
  constexpr double h = 1e-30;
  ComplexInputs x;
  for (const auto& input : inputs) x.emplace_back(input.begin(), input.end());
  std::vector<double> gradient(inputs[which].size());
  for (size_t j = 0; j < gradient.size(); ++j) {
    x[which][j] += Complex(0, h);
    gradient[j] = f(x).imag() / h;
    x[which][j] = inputs[which][j];
  }
  return gradient;
}

// sum_i y_i g_i: the usual scalar whose gradient is the backward pass applied to g.
template <class S>
S weighted_sum(const std::vector<S>& y, const std::vector<double>& g) {
  S sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * g[i];
  return sum;
}

// (f(x + h d) - f(x - h d)) / 2h along a direction d in inputs[which]: the second witness, on real numbers.
using RealFunction = std::function<double(const std::vector<std::vector<double>>&)>;
inline double central_difference(const RealFunction& f, std::vector<std::vector<double>> inputs, size_t which,
                                 const std::vector<double>& direction, double h) {
  const std::vector<double> x = inputs[which];
  const auto at = [&](double step) {
    for (size_t j = 0; j < x.size(); ++j) inputs[which][j] = x[j] + step * direction[j];
    return f(inputs);
  };
  const double up = at(h), down = at(-h);
  return (up - down) / (2 * h);
}

}  // namespace kata::test
