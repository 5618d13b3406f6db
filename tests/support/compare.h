// Comparisons for tests: relative Frobenius norm, and any non-finite value fails.
#pragma once

#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/philox.h"

namespace kata::test {

// |a - b|_F / |b|_F, or |a|_F where b is zero; NaN where anything is not finite.
template <class A, class B>
double relative_error(const A* a, const B* b, size_t n) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return NAN;
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

template <class A, class B>
::testing::AssertionResult close(const std::vector<A>& a, const std::vector<B>& b, double tolerance) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << "sizes " << a.size() << " and " << b.size();
  const double error = relative_error(a.data(), b.data(), a.size());
  if (!(error <= tolerance))  // catches NaN
    return ::testing::AssertionFailure() << "relative error " << error << " above " << tolerance;
  return ::testing::AssertionSuccess();
}

// n normal numbers times scale, the same for the same seed everywhere.
template <class T = double>
std::vector<T> random_normal(size_t n, uint64_t seed, double scale = 1) {
  const Philox random(seed, stream_test);
  std::vector<T> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<T>(scale * random.normal(i));
  return x;
}

template <class To, class From>
std::vector<To> cast(const std::vector<From>& x) {
  return std::vector<To>(x.begin(), x.end());
}

}  // namespace kata::test
