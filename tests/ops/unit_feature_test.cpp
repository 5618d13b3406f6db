#include "ops/unit_feature.h"

#include <limits>

#include "base/parallel.h"
#include "ops/linear_attention_support.h"
#include "ops/oracle/unit_feature.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::near;
using test::psd;
using test::psd_sum;
using test::random_normal;
using test::tensor;

const FeatureMap identity5{MapKind::identity, 5, 1}, orthant7{MapKind::orthant, 7, 1},
    lorentz7{MapKind::lorentz, 7, 1}, hermitian8{MapKind::hermitian, 8, 1},
    quaternionic8{MapKind::quaternionic, 8, 1};

template <class T>
struct Result {
  std::vector<T> u, dx;
};

template <class T>
Result<T> run(const FeatureMap& map, std::vector<T> x, std::vector<T> du, double scale = 1) {
  const int64_t rows = static_cast<int64_t>(x.size()) / map.width;
  Result<T> r{std::vector<T>(x.size(), T(NAN)), std::vector<T>(x.size(), T(NAN))};
  test::run_op([&](Context& ctx) {
    const Shape shape{rows, map.width};
    unit_feature_forward(ctx, tensor(r.u, shape), tensor(x, shape), scale, map);
    unit_feature_backward(ctx, tensor(r.dx, shape), tensor(du, shape), tensor(x, shape), scale, map);
  });
  return r;
}

// f is homogeneous in all of x, or in h of lorentz, whose tau stays of size one.
bool scaled(const FeatureMap& map, size_t i) {
  return map.kind != MapKind::lorentz || static_cast<int64_t>(i) % map.width != map.width - 1;
}

std::vector<double> times(const FeatureMap& map, std::vector<double> x, double size) {
  for (size_t i = 0; i < x.size(); ++i)
    if (scaled(map, i)) x[i] *= size;
  return x;
}

// Each row's |u| = scale of the first-order maps; in the psd family |f(u)| = scale^2, by the op feature_map,
// which multiplies by sigma.
template <class T>
void expect_unit_features(const FeatureMap& map, std::vector<T> u, double scale, double tolerance) {
  const int64_t rows = static_cast<int64_t>(u.size()) / map.width;
  std::vector<T> f = u;
  double sigma = 1, length = scale;
  if (!map.first_order()) {
    f.assign(static_cast<size_t>(rows * map.features()), T(NAN));
    test::run_op([&](Context& ctx) {
      feature_map_forward(ctx, tensor(f, {rows, map.features()}), tensor(u, {rows, map.width}), map);
    });
    sigma = map.sigma();
    length = scale * scale;
  }
  const size_t n = static_cast<size_t>(map.features());
  for (size_t r = 0; r < f.size(); r += n) {
    double squares = 0;
    for (size_t j = 0; j < n; ++j) squares += static_cast<double>(f[r + j]) * static_cast<double>(f[r + j]);
    EXPECT_NEAR(std::sqrt(squares) / sigma / length, 1, tolerance);
  }
}

using MapAndSize = std::tuple<FeatureMap, double>;

class UnitFeature : public ::testing::TestWithParam<MapAndSize> {
 protected:
  FeatureMap map = std::get<0>(GetParam());
  double size = std::get<1>(GetParam());
  std::vector<double> x = times(map, random_normal(static_cast<size_t>(6 * map.width), 1), size);
  std::vector<double> du = random_normal(x.size(), 2);
  static constexpr double scale = 0.7;
};

// Gradients are compared times the size of x: some are 0 in exact arithmetic, so that a norm needs a
// yardstick.
TEST_P(UnitFeature, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(map, x, du, scale);
  EXPECT_TRUE(close(r.u, oracle::unit_feature<double>(map, x, scale), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::unit_feature<test::Complex>(map, in[0], scale), du);
  };
  const auto expected = test::complex_step(f, {x}, 0);
  EXPECT_TRUE(near(times(map, r.dx, size), times(map, expected, size), 1e-12));
  expect_unit_features(map, r.u, scale, 1e-14);
}

TEST_P(UnitFeature, FloatAgainstDouble) {
  const auto xf = cast<float>(x), gf = cast<float>(du);
  const auto f = run<float>(map, xf, gf, scale);
  const auto d = run<double>(map, cast<double>(xf), cast<double>(gf), scale);
  EXPECT_TRUE(close(f.u, d.u, 1e-6));
  EXPECT_TRUE(near(times(map, cast<double>(f.dx), size), times(map, d.dx, size), 2e-6));
  expect_unit_features(map, f.u, scale, 2e-6);
}

// Sizes whose fourth power, and whose square, no float holds; and features just above the threshold.
INSTANTIATE_TEST_SUITE_P(
    MapsAndSizes, UnitFeature,
    ::testing::Combine(::testing::Values(identity5, orthant7, lorentz7, FeatureMap{MapKind::lorentz, 2, 1},
                                         psd(1, 1), psd(7, 1), psd(8, 2), psd(8, 4), psd(8, 8), psd(64, 1),
                                         psd_sum(8, 1), psd_sum(8, 2), psd_sum(8, 4), psd_sum(64, 4),
                                         hermitian8, FeatureMap{MapKind::hermitian, 2, 1}, quaternionic8),
                       ::testing::Values(1, 1e-3, 1e3, 1e15, 1e30)));

class HomogeneousMap : public ::testing::TestWithParam<FeatureMap> {};

// |f(x)| = 0.99e-10 is a zero row, 1.01e-10 is not, for every type; far below, the exponent of no float
// counts.
template <class T>
void expect_threshold(const FeatureMap& map) {
  const auto direction = random_normal(static_cast<size_t>(map.width), 3);
  const auto du = random_normal<T>(direction.size(), 4);
  const std::vector<T> zero(direction.size());
  double length = 0;
  if (map.first_order())
    for (double f : oracle::first_order_feature(map, direction)) length += f * f;
  else
    length = oracle::product_feature_squares(map, direction);
  length = std::sqrt(length);
  const auto at = [&](double target) {
    const double ratio = target / length;
    return run<T>(map, cast<T>(times(map, direction, map.first_order() ? ratio : std::sqrt(ratio))), du);
  };
  for (const double below : {0.99e-10, 1e-24, 1e-44, 0.0}) {
    EXPECT_EQ(at(below).u, zero) << below;
    EXPECT_EQ(at(below).dx, zero) << below;
  }
  expect_unit_features(map, at(1.01e-10).u, 1, 1e-6);
  EXPECT_NE(at(1.01e-10).dx, zero);
}

TEST_P(HomogeneousMap, VanishesWhereTheFeatureDoes) {
  expect_threshold<float>(GetParam());
  expect_threshold<double>(GetParam());
}

TEST_P(HomogeneousMap, ZeroRowsStandAmongOthers) {
  const FeatureMap map = GetParam();
  const auto width = static_cast<size_t>(map.width);
  const auto x = random_normal(2 * width, 5), du = random_normal(3 * width, 6);
  std::vector<double> with(x.begin(), x.begin() + map.width), others = du;
  with.insert(with.end(), width, 0);
  with.insert(with.end(), x.begin() + map.width, x.end());
  others.erase(others.begin() + map.width, others.begin() + 2 * map.width);
  auto r = run<double>(map, with, du);
  const auto expected = run<double>(map, x, others);
  for (size_t j = width; j < 2 * width; ++j) {
    EXPECT_EQ(r.u[j], 0);
    EXPECT_EQ(r.dx[j], 0);
  }
  for (auto* v : {&r.u, &r.dx}) v->erase(v->begin() + map.width, v->begin() + 2 * map.width);
  EXPECT_EQ(r.u, expected.u);
  EXPECT_EQ(r.dx, expected.dx);
}

TEST_P(HomogeneousMap, NonFiniteInputsDoNotHide) {
  const FeatureMap map = GetParam();
  for (const float bad : {NAN, INFINITY, -INFINITY})
    for (int64_t j = 0; j < map.width; ++j) {
      auto x = random_normal<float>(static_cast<size_t>(2 * map.width), 7);
      x[static_cast<size_t>(j)] = bad;
      const auto r = run<float>(map, x, std::vector<float>(x.size(), 1));
      for (size_t i = 0; i < static_cast<size_t>(map.width); ++i) {
        EXPECT_TRUE(std::isnan(r.u[i])) << bad << " " << j << " " << i;
        EXPECT_TRUE(std::isnan(r.dx[i])) << bad << " " << j << " " << i;
      }
      for (size_t i = static_cast<size_t>(map.width); i < x.size(); ++i)
        EXPECT_TRUE(std::isfinite(r.u[i]) && std::isfinite(r.dx[i])) << bad << " " << j << " " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Maps, HomogeneousMap,
                         ::testing::Values(identity5, lorentz7, psd(7, 1), psd(8, 2), psd(8, 4),
                                           psd_sum(8, 2), psd_sum(8, 4), hermitian8, quaternionic8));

TEST(UnitFeatureOp, OrthantHasItsEpsilonAndItsKinks) {
  // All at or left of the kink: every feature is 1e-6, a unit row, and nothing moves it.
  const auto flat = run<double>({MapKind::orthant, 4, 1}, {0, -1, -1e9, 0}, {1, 2, 3, 4});
  for (double u : flat.u) EXPECT_NEAR(u, 0.5, 1e-15);
  EXPECT_EQ(flat.dx, std::vector<double>(4));
  const auto r = run<double>({MapKind::orthant, 4, 1}, {3, 0, -2, 4}, {1, 2, 3, 4});
  EXPECT_NEAR(r.u[0], 0.6, 1e-6);
  EXPECT_NE(r.dx[0], 0);
  EXPECT_EQ(r.dx[1], 0);
  EXPECT_EQ(r.dx[2], 0);
  EXPECT_TRUE(std::isnan(run<float>({MapKind::orthant, 2, 1}, {NAN, 1}, {1, 1}).u[0]));
}

// h and tau so far apart that neither |h|^2, tau^2 nor |f| is a float.
template <class T>
void expect_far_lorentz(double size, double tau) {
  const T tall = static_cast<T>(tau);
  const auto r = run<T>({MapKind::lorentz, 3, 1}, {T(3) * T(size), T(4) * T(size), tall}, {1, 2, 3}, 2);
  const double c = 1 / (1 + tau * tau), rho = 1 / std::sqrt(1 + c * c), along = 0.6 + 1.6;
  const double tolerance = 8 * std::numeric_limits<T>::epsilon();
  EXPECT_NEAR(r.u[0] / (2 * rho * c * 0.6), 1, tolerance);
  EXPECT_NEAR(r.u[1] / (2 * rho * c * 0.8), 1, tolerance);
  EXPECT_NEAR(r.u[2] / (2 * rho), 1, tolerance);
  const double across = 2 * rho * c / (5 * size);
  EXPECT_NEAR(r.dx[0] / (across * (1 - 0.6 * along)), 1, 4 * tolerance);
  EXPECT_NEAR(r.dx[1] / (across * (2 - 0.8 * along)), 1, 4 * tolerance);
  EXPECT_NEAR(r.dx[2], 2 * rho * rho * rho * (along - 3 * c) * -2 * tau * c * c,
              1e-37 + tolerance * 8 * tau * c * c);
}

TEST(UnitFeatureOp, LorentzKeepsItsDigitsWhereSquaresOverflow) {
  for (const auto& [size, tau] :
       {std::pair{1e-20, 1e15}, {1e-30, 3e11}, {1e10, 1e3}, {1e25, 0.5}, {1e-5, 7.0}}) {
    expect_far_lorentz<float>(size, tau);
    expect_far_lorentz<double>(size, tau);
  }
  const std::vector<float> tau_only{0, 0, 0, 3}, zero(4);
  const auto r = run<float>({MapKind::lorentz, 4, 1}, tau_only, {1, 2, 3, 4});
  EXPECT_EQ(r.u, zero);
  EXPECT_EQ(r.dx, zero);
  EXPECT_EQ(run<float>({MapKind::lorentz, 1, 1}, {3}, {1}).u, std::vector<float>(1));  // no h at all
}

TEST(UnitFeatureOp, StridedHeadsEqualTheContiguousForm) {
  const int64_t rows = 4, heads = 2;
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 8, 1}, FeatureMap{MapKind::orthant, 8, 1},
                                FeatureMap{MapKind::lorentz, 8, 1}, psd(8, 2), psd_sum(8, 4)}) {
    const int64_t row = heads * map.width;
    // Buffers of different widths, filled with 7; the heads start at column `first`.
    const auto place = [&](std::vector<double>& wide, int64_t fused, int64_t first,
                           const std::vector<double>& values) {
      wide.assign(static_cast<size_t>(rows * fused), 7);
      for (int64_t r = 0; r < rows && !values.empty(); ++r)
        std::copy_n(values.begin() + r * row, row, wide.begin() + r * fused + first);
      return tensor(wide, {rows, fused}).columns(first, first + row).split_last(heads, map.width);
    };
    const auto values = random_normal(static_cast<size_t>(rows * row), 1),
               du = random_normal(values.size(), 2);
    const auto expected = run<double>(map, values, du, 3);
    std::vector<double> wx, wu, wdu, wdx, want;
    const Tensor x = place(wx, 40, 8, values), dut = place(wdu, 20, 2, du);
    const Tensor u = place(wu, 20, 1, {}), dx = place(wdx, 19, 3, {});
    test::run_op([&](Context& ctx) {
      unit_feature_forward(ctx, u, x, 3, map);
      unit_feature_backward(ctx, dx, dut, x, 3, map);
    });
    place(want, 20, 1, expected.u);
    EXPECT_EQ(wu, want);
    place(want, 19, 3, expected.dx);
    EXPECT_EQ(wdx, want);
  }
}

TEST(UnitFeatureOp, ThreadCountChangesNoBit) {
  const FeatureMap map = psd_sum(16, 2);
  const auto x = random_normal<float>(1000 * 16, 1), du = random_normal<float>(1000 * 16, 2);
  set_thread_count(1);
  const auto one = run<float>(map, x, du);
  set_thread_count(2);
  const auto two = run<float>(map, x, du);
  EXPECT_EQ(one.u, two.u);
  EXPECT_EQ(one.dx, two.dx);
}

}  // namespace
}  // namespace kata
