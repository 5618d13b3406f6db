// Elementary functions that a compiler can vectorise: branch-free, NaN in gives NaN out.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kata::cpu {

// exp(x) within 2 ulp for x in [-87, 88]; below that it returns about 1e-38, above that about 2e38.
// Cody-Waite reduction by ln 2, then 1 + r + r^2 q(r) on [-ln2/2, ln2/2], where q of degree 4 meets the exact
// (exp(r) - 1 - r) / r^2 at the Chebyshev points: 1e-8 relative, so that only rounding is left.
inline float fast_exp(float x) {
  x = x < -87.3f ? -87.3f : x;
  x = x > 88.3f ? 88.3f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23 rounds to the nearest integer
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 0.00139261759f;
  p = p * r + 0.00836317334f;
  p = p * r + 0.0416665561f;
  p = p * r + 0.166665778f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4B400000 + 127;
  return p * std::bit_cast<float>(exponent << 23);
}
inline double fast_exp(double x) {
  return std::exp(x);
}

template <class T>
inline T sigmoid(T x) {
  return 1 / (1 + fast_exp(-x));
}
template <class T>
inline T silu(T x) {
  return x * sigmoid(x);
}
template <class T>
inline T silu_derivative(T x) {
  const T s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

}  // namespace kata::cpu
