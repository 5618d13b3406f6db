// The closed forms against random keys and plain loops that share no code with the suite.
#include "eval/capacity_theory.h"

#include <cmath>
#include <complex>
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include "eval/capacity_certificates.h"

namespace kata {
namespace {

using Key = std::vector<double>;

class Random {
 public:
  Key key(int p) {
    Key x(p);
    double sum = 0;
    for (double& value : x) value = normal_(engine_), sum += value * value;
    for (double& value : x) value /= std::sqrt(sum);
    return x;
  }

 private:
  std::mt19937_64 engine_{7};
  std::normal_distribution<double> normal_;
};

double dot(const Key& x, const Key& y, int first, int other, int n) {
  double sum = 0;
  for (int j = 0; j < n; ++j) sum += x[first + j] * y[other + j];
  return sum;
}

double groups_score(const Key& x, const Key& y, int m, bool all_pairs) {
  const int e = static_cast<int>(x.size()) / m;
  double sum = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < m; ++j)
      if (all_pairs || i == j) sum += std::pow(dot(x, y, i * e, j * e, e), 2);
  return sum;
}

double hermitian_score(const Key& x, const Key& y) {
  std::complex<double> sum;
  for (size_t j = 0; j < x.size(); j += 2)
    sum += std::conj(std::complex(x[j], x[j + 1])) * std::complex(y[j], y[j + 1]);
  return std::norm(sum);
}

// Four squares: the components of sum_j conj(x_j) y_j.
double quaternionic_score(const Key& x, const Key& y) {
  double r = 0, i = 0, j = 0, k = 0;
  for (size_t n = 0; n < x.size(); n += 4) {
    const double a = x[n], b = -x[n + 1], c = -x[n + 2], d = -x[n + 3];
    const double e = y[n], f = y[n + 1], g = y[n + 2], h = y[n + 3];
    r += a * e - b * f - c * g - d * h;
    i += a * f + b * e + c * h - d * g;
    j += a * g - b * h + c * e + d * f;
    k += a * h + b * g - c * f + d * e;
  }
  return r * r + i * i + j * j + k * k;
}

double orthant_score(const Key& x, const Key& y) {
  double sum = 0;
  for (size_t j = 0; j < x.size(); ++j) sum += std::max(x[j], 0.0) * std::max(y[j], 0.0);
  return sum;
}

double lorentz_score(const Key& x, const Key& y) {
  const int n = static_cast<int>(x.size()) - 1;
  const double xx = std::sqrt(dot(x, x, 0, 0, n)), yy = std::sqrt(dot(y, y, 0, 0, n));
  return dot(x, y, 0, 0, n) + xx * yy * (1 + x[n] * x[n]) * (1 + y[n] * y[n]);
}

void expect_power(double expected, int p, const std::function<double(const Key&, const Key&)>& score) {
  Random random;
  double noise = 0, signal = 0;
  for (int i = 0; i < 60000; ++i) {
    const Key x = random.key(p), y = random.key(p);
    noise += std::pow(score(x, y), 2);
    signal += std::pow(score(x, x), 2);
  }
  EXPECT_NEAR(noise / signal / expected, 1, 0.04) << "p = " << p;
}

TEST(CapacityTheory, PowerOfRandomKeys) {
  for (const int p : {4, 12}) {
    expect_power(raw_power(p), p,
                 [](const Key& x, const Key& y) { return dot(x, y, 0, 0, static_cast<int>(x.size())); });
    expect_power(orthant_power(p), p, orthant_score);
    expect_power(lorentz_power(p), p, lorentz_score);
    expect_power(squares_power(1, p), p,
                 [](const Key& x, const Key& y) { return groups_score(x, y, 1, false); });
    expect_power(squares_power(2, p), p, hermitian_score);
    expect_power(squares_power(4, p), p, quaternionic_score);
    for (const int m : {2, 4}) {
      SCOPED_TRACE(m);
      expect_power(psd_power(m, p), p,
                   [m](const Key& x, const Key& y) { return groups_score(x, y, m, false); });
      expect_power(psd_sum_power(m, p), p,
                   [m](const Key& x, const Key& y) { return groups_score(x, y, m, true); });
    }
  }
}

TEST(CapacityTheory, ThePublishedThresholds) {
  for (const int64_t p : {8, 16, 32, 64}) {
    const auto d = static_cast<double>(p);
    EXPECT_DOUBLE_EQ(1 / raw_power(p), d);
    EXPECT_DOUBLE_EQ(1 / squares_power(1, p), d * (d + 2) / 3);
    EXPECT_DOUBLE_EQ(1 / psd_power(1, p), d * (d + 2) / 3);
    EXPECT_DOUBLE_EQ(1 / psd_sum_power(1, p), d * (d + 2) / 3);
    EXPECT_DOUBLE_EQ(1 / squares_power(2, p), d / 2 * (d / 2 + 1) / 2);
    EXPECT_DOUBLE_EQ(1 / squares_power(4, p), d / 4 * (d / 2 + 1) / 3);
  }
  EXPECT_NEAR(1 / orthant_power(100'000'000), M_PI * M_PI, 1e-5);
  EXPECT_NEAR(1 / lorentz_power(100'000'000), 4, 1e-5);
}

// Half of the inverse share of keys that score above eps with a given one; over the reals at most that.
TEST(CapacityTheory, PackingBounds) {
  constexpr int p = 8, draws = 100000;
  constexpr double eps = 0.2;
  Random random;
  const Key x = random.key(p);
  double real = 0, hermitian = 0, quaternionic = 0;
  for (int i = 0; i < draws; ++i) {
    const Key y = random.key(p);
    real += groups_score(x, y, 1, false) > eps;
    hermitian += hermitian_score(x, y) > eps;
    quaternionic += quaternionic_score(x, y) > eps;
  }
  EXPECT_DOUBLE_EQ(packing_bound(1, p, eps), 0.5 * std::pow(0.8, -3.5));
  EXPECT_LT(packing_bound(1, p, eps), 0.5 * draws / real);
  EXPECT_NEAR(packing_bound(2, p, eps) * hermitian / draws, 0.5, 0.01);
  EXPECT_NEAR(packing_bound(4, p, eps) * quaternionic / draws, 0.5, 0.01);
}

// The isometries of the complex and the quaternionic scores, which the suite applies from the left.
TEST(CapacityTheory, UnitaryMapsKeepScores) {
  constexpr int p = 12;
  Random random;
  for (const int field : {1, 2, 4}) {
    const std::vector<double> u = random_unitary(p / field, field, Philox(1, 2));
    const Key x = random.key(p), y = random.key(p);
    Key ux(p), uy(p);
    apply_matrix(ux.data(), u, x.data(), p / field, field);
    apply_matrix(uy.data(), u, y.data(), p / field, field);
    const auto change = [&](const std::function<double(const Key&, const Key&)>& score) {
      return std::abs(score(ux, uy) - score(x, y));
    };

    // A unitary map keeps the real product, which is a component of the others.
    EXPECT_LT(change([](const Key& a, const Key& b) { return groups_score(a, b, 1, false); }), 1e-14);
    if (field == 2) {
      EXPECT_LT(change(hermitian_score), 1e-14);
    }
    if (field == 4) {
      EXPECT_LT(change(quaternionic_score), 1e-14);
      EXPECT_GT(change(hermitian_score), 1e-3) << "a quaternionic map is more than a complex one";
    }
  }
}

TEST(CapacityTheory, Welch) {
  EXPECT_DOUBLE_EQ(welch_bound(5, 4), 0.25);
  EXPECT_DOUBLE_EQ(welch_bound(16, 4), std::sqrt(12.0 / 60));
  EXPECT_EQ(welch_bound(4, 4), 0);
  EXPECT_EQ(welch_bound(2, 4), 0);
}

}  // namespace
}  // namespace kata
