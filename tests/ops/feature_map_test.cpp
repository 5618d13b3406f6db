#include "ops/feature_map.h"

#include "base/parallel.h"
#include "ops/linear_attention_support.h"
#include "ops/oracle/feature_map.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::psd;
using test::psd_sum;
using test::random_normal;
using test::tensor;

template <class T>
std::vector<T> forward(const FeatureMap& map, std::vector<T> x) {
  const int64_t rows = static_cast<int64_t>(x.size()) / map.width;
  std::vector<T> f(static_cast<size_t>(rows * map.features()), T(NAN));
  test::run_op([&](Context& ctx) {
    feature_map_forward(ctx, tensor(f, {rows, map.features()}), tensor(x, {rows, map.width}), map);
  });
  return f;
}

template <class T>
std::vector<T> backward(const FeatureMap& map, std::vector<T> x, std::vector<T> df) {
  const int64_t rows = static_cast<int64_t>(x.size()) / map.width;
  std::vector<T> dx(x.size(), T(NAN));
  test::run_op([&](Context& ctx) {
    feature_map_backward(ctx, tensor(dx, {rows, map.width}), tensor(df, {rows, map.features()}),
                         tensor(x, {rows, map.width}), map);
  });
  return dx;
}

template <class S>
std::vector<S> oracle_rows(const FeatureMap& map, const std::vector<S>& x) {
  std::vector<S> f;
  for (size_t r = 0; r < x.size(); r += static_cast<size_t>(map.width)) {
    const auto row = oracle::features<S>(map, &x[r]);
    f.insert(f.end(), row.begin(), row.end());
  }
  return f;
}

class EveryMap : public ::testing::TestWithParam<FeatureMap> {};

TEST_P(EveryMap, EqualsTheOracleInValueAndGradient) {
  const FeatureMap& map = GetParam();
  const auto x = random_normal(static_cast<size_t>(3 * map.width), 1);
  const auto df = random_normal(static_cast<size_t>(3 * map.features()), 2);
  EXPECT_TRUE(close(forward<double>(map, x), oracle_rows<double>(map, x), 1e-15));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle_rows<test::Complex>(map, in[0]), df);
  };
  EXPECT_TRUE(close(backward<double>(map, x, df), test::complex_step(f, {x}, 0), 1e-14));
  const auto xf = cast<float>(x), dff = cast<float>(df);
  EXPECT_TRUE(close(forward<float>(map, xf), forward<double>(map, cast<double>(xf)), 1e-6));
  EXPECT_TRUE(
      close(backward<float>(map, xf, dff), backward<double>(map, cast<double>(xf), cast<double>(dff)), 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Maps, EveryMap,
                         ::testing::Values(FeatureMap{MapKind::identity, 5, 1},
                                           FeatureMap{MapKind::orthant, 7, 1},
                                           FeatureMap{MapKind::lorentz, 7, 1},
                                           FeatureMap{MapKind::lorentz, 2, 1}, psd(1, 1), psd(7, 1),
                                           psd(8, 2), psd(8, 8), psd(64, 1), psd_sum(8, 1), psd_sum(8, 2),
                                           psd_sum(8, 8), psd_sum(64, 4)));

TEST(FeatureMapOp, WidthsOfTheMaps) {
  EXPECT_EQ(psd(64, 1).features(), 2080);
  EXPECT_EQ(psd(64, 2).features(), 1056);
  EXPECT_EQ(psd(64, 4).features(), 544);
  EXPECT_EQ(psd_sum(64, 2).features(), 528);
  EXPECT_EQ(psd_sum(64, 4).features(), 136);
  EXPECT_EQ((FeatureMap{MapKind::lorentz, 64, 1}).features(), 64);
  EXPECT_DOUBLE_EQ(psd(64, 4).sigma(), 0.25);
  EXPECT_DOUBLE_EQ(psd_sum(64, 2).sigma(), 1 / std::sqrt(32.0));
  EXPECT_DOUBLE_EQ((FeatureMap{MapKind::orthant, 64, 1}).sigma(), 1);
}

// The table of MATH 1: what the inner product of two features is, written out for each map.
TEST(FeatureMapOp, InnerProductsAreTheScores) {
  const auto x = random_normal(8, 1), y = random_normal(8, 2);
  const auto dot = [](const double* a, const double* b, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += a[j] * b[j];
    return sum;
  };
  const auto inner = [&](const FeatureMap& map) {
    const auto f = forward<double>(map, x), g = forward<double>(map, y);
    return dot(f.data(), g.data(), f.size());
  };
  const auto square = [](double r) { return r * r; };
  double concat = 0, sum = 0;
  for (size_t i = 0; i < 2; ++i) concat += square(dot(&x[4 * i], &y[4 * i], 4) / 2);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 2; ++j) sum += square(dot(&x[4 * i], &y[4 * j], 4) / 2);
  EXPECT_NEAR(inner(psd(8, 1)), square(dot(x.data(), y.data(), 8)) / 8, 1e-13);
  EXPECT_NEAR(inner(psd(8, 2)), concat, 1e-13);
  EXPECT_NEAR(inner(psd_sum(8, 2)), sum, 1e-13);
  const double norms = std::sqrt(dot(x.data(), x.data(), 7) * dot(y.data(), y.data(), 7));
  EXPECT_NEAR(inner({MapKind::lorentz, 8, 1}),
              dot(x.data(), y.data(), 7) + norms * (1 + x[7] * x[7]) * (1 + y[7] * y[7]), 1e-12);
}

TEST(FeatureMapOp, KinksAndZerosHaveTheStatedGradient) {
  const std::vector<double> zero(4), df{1, 2, 3, 4};
  EXPECT_EQ(forward<double>({MapKind::orthant, 4, 1}, zero), (std::vector<double>(4, 1e-6)));
  EXPECT_EQ(backward<double>({MapKind::orthant, 4, 1}, zero, df), zero);
  const std::vector<double> tau_only{0, 0, 0, 3};
  EXPECT_EQ(forward<double>({MapKind::lorentz, 4, 1}, tau_only), zero);
  EXPECT_EQ(backward<double>({MapKind::lorentz, 4, 1}, tau_only, df), (std::vector<double>{1, 2, 3, 0}));
  EXPECT_EQ(backward<double>(psd(4, 1), zero, std::vector<double>(10, 1)), zero);
}

TEST(FeatureMapOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(1000 * 16, 1), df = random_normal<float>(1000 * 72, 2);
  set_thread_count(1);
  const auto f1 = forward<float>(psd(16, 2), x), dx1 = backward<float>(psd(16, 2), x, df);
  set_thread_count(2);
  EXPECT_EQ(f1, forward<float>(psd(16, 2), x));
  EXPECT_EQ(dx1, backward<float>(psd(16, 2), x, df));
}

TEST(FeatureMapOp, LargeStride) {
  const int64_t rows = 9, stride = int64_t{1} << 28;  // the last row starts at 2^31
  test::SparseArray<float> x(rows * stride);
  KATA_SKIP_UNLESS_MAPPED(x);
  const FeatureMap map = psd(2, 1);
  std::vector<float> f(27), df(27, 1);
  x[(rows - 1) * stride] = 3;
  x[(rows - 1) * stride + 1] = 5;
  Arena arena(0);
  Context ctx{arena};
  const Tensor view = x.tensor({rows, stride}).columns(0, 2);
  feature_map_forward(ctx, tensor(f, {rows, 3}), view, map);
  EXPECT_NEAR(f[26], 15, 1e-5);  // sigma sqrt(2) 3 * 5
}

}  // namespace
}  // namespace kata
