#include "ops/cpu/vector_math.h"

#include <gtest/gtest.h>
#include <limits>

#include "ops/oracle/scalar.h"
#include "support/compare.h"
#include "support/gradient.h"

namespace kata {
namespace {

// Distance in units of the last place of the exact value rounded to float.
double ulps(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  const double unit = static_cast<double>(std::nextafter(rounded, INFINITY)) - static_cast<double>(rounded);
  return std::abs(static_cast<double>(got) - exact) / unit;
}

TEST(FastExp, IsWithinTwoUlpInItsRange) {
  double worst = 0;
  for (int64_t i = 0; i <= 2'000'000; ++i) {
    const float x = static_cast<float>(-87.0 + 175.0 * static_cast<double>(i) / 2e6);
    worst = std::max(worst, ulps(cpu::fast_exp(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2);
  EXPECT_EQ(cpu::fast_exp(0.0f), 1.0f);
}

TEST(FastExp, IsFineForArgumentsNearZero) {
  for (float x = 1; x > 1e-30f; x /= 3) {
    EXPECT_LE(ulps(cpu::fast_exp(x), std::exp(static_cast<double>(x))), 2) << x;
    EXPECT_LE(ulps(cpu::fast_exp(-x), std::exp(static_cast<double>(-x))), 2) << -x;
  }
}

TEST(FastExp, NeverOverflowsAndVanishesBelowItsRange) {
  for (const float x : {88.5f, 100.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(std::isfinite(cpu::fast_exp(x))) << x;
    EXPECT_GE(cpu::fast_exp(x), 1e38f) << x;
  }
  for (const float x : {-88.0f, -100.0f, -1e30f, -std::numeric_limits<float>::infinity()}) {
    EXPECT_GE(cpu::fast_exp(x), 0) << x;
    EXPECT_LE(cpu::fast_exp(x), 2e-38f) << x;
  }
}

TEST(FastExp, NanStaysNan) {
  EXPECT_TRUE(std::isnan(cpu::fast_exp(NAN)));
  EXPECT_TRUE(std::isnan(cpu::fast_exp(static_cast<double>(NAN))));
  EXPECT_TRUE(std::isnan(cpu::sigmoid(NAN)));
  EXPECT_TRUE(std::isnan(cpu::silu(NAN)));
  EXPECT_TRUE(std::isnan(cpu::silu_derivative(NAN)));
}

TEST(FastExp, AVectorisedLoopGivesTheSameBits) {
  const auto x = test::random_normal<float>(1000, 1, 20);
  std::vector<float> y(x.size());
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = cpu::fast_exp(x[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    volatile float one = x[i];
    EXPECT_EQ(y[i], cpu::fast_exp(one)) << x[i];
  }
}

TEST(Silu, DoubleAgainstTheOracleAndItsComplexStep) {
  for (double x = -40; x <= 40; x += 0.37) {
    EXPECT_NEAR(cpu::sigmoid(x), oracle::sigmoid(x), 1e-15) << x;
    EXPECT_NEAR(cpu::silu(x), oracle::silu(x), 1e-14 * (1 + std::abs(x))) << x;
    const double derivative = oracle::silu(test::Complex(x, 1e-30)).imag() / 1e-30;
    EXPECT_NEAR(cpu::silu_derivative(x), derivative, 1e-14) << x;
  }
}

TEST(Silu, FloatAgainstDouble) {
  for (float x = -80; x <= 80; x += 0.11f) {
    const double exact = static_cast<double>(x);
    EXPECT_NEAR(cpu::sigmoid(x) / cpu::sigmoid(exact), 1, 1e-6) << x;
    EXPECT_NEAR(cpu::silu(x), cpu::silu(exact), 1e-6 * std::abs(exact)) << x;
    EXPECT_NEAR(cpu::silu_derivative(x), cpu::silu_derivative(exact), 1e-6) << x;
  }
  EXPECT_EQ(cpu::silu(-1e5f) * 0, 0);
  EXPECT_NEAR(cpu::silu(-1e5f), 0, 1e-30);
  EXPECT_EQ(cpu::silu(1e5f), 1e5f);
}

}  // namespace
}  // namespace kata
