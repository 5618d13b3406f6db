#include "ops/swiglu.h"

#include "base/parallel.h"
#include "ops/oracle/swiglu.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

struct Case {
  int64_t rows, width;
  double scale;
};

template <class T>
struct Result {
  std::vector<T> y, dx;
};

template <class T>
Result<T> run(std::vector<T> x, std::vector<T> dy, int64_t rows, int64_t width) {
  Result<T> r{std::vector<T>(dy.size(), NAN), std::vector<T>(x.size(), NAN)};
  test::run_op([&](Context& ctx) {
    const Shape narrow{rows, width}, wide{rows, 2 * width};
    swiglu_forward(ctx, tensor(r.y, narrow), tensor(x, wide));
    swiglu_backward(ctx, tensor(r.dx, wide), tensor(dy, narrow), tensor(x, wide));
  });
  return r;
}

class SwiGlu : public ::testing::TestWithParam<Case> {
 protected:
  int64_t rows = GetParam().rows, width = GetParam().width;
  std::vector<double> x = random_normal(static_cast<size_t>(2 * rows * width), 1, GetParam().scale);
  std::vector<double> dy = random_normal(static_cast<size_t>(rows * width), 2);
};

TEST_P(SwiGlu, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, dy, rows, width);
  EXPECT_TRUE(close(r.y, oracle::swiglu<double>(x, static_cast<size_t>(width)), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::swiglu<test::Complex>(in[0], static_cast<size_t>(width)), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x}, 0), 1e-13));
}

TEST_P(SwiGlu, FloatAgainstDouble) {
  const auto xf = cast<float>(x), gf = cast<float>(dy);
  const auto f = run<float>(xf, gf, rows, width);
  const auto d = run<double>(cast<double>(xf), cast<double>(gf), rows, width);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SwiGlu,
                         ::testing::Values(Case{1, 1, 1}, Case{3, 7, 1}, Case{5, 33, 4}, Case{2, 16, 1e-6},
                                           Case{2, 16, 1e4}, Case{90, 1, 1}));

TEST(SwiGluOp, CentralDifference) {
  const auto x = random_normal(24, 1), dy = random_normal(12, 2), direction = random_normal(24, 3);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], dy, 3, 4).y, dy);
  };
  EXPECT_NEAR(test::central_difference(f, {x}, 0, direction, 1e-5),
              test::weighted_sum(run<double>(x, dy, 3, 4).dx, direction), 1e-8);
}

TEST(SwiGluOp, GateComesFirstAndZeroGateCloses) {
  const auto r = run<double>({0, 100, 5, 7}, {1, 1}, 1, 2);
  EXPECT_EQ(r.y[0], 0);
  EXPECT_NEAR(r.y[1], 700, 1e-12);
  EXPECT_EQ(r.dx, (std::vector<double>{2.5, r.dx[1], 0, r.dx[3]}));  // silu'(0) = 1/2
  EXPECT_NEAR(r.dx[1], 7, 1e-12);
  EXPECT_NEAR(r.dx[3], 100, 1e-12);
}

TEST(SwiGluOp, BackwardMayOverwriteItsInput) {
  auto x = random_normal<float>(2 * 40, 1), dy = random_normal<float>(40, 2);
  const auto expected = run<float>(x, dy, 4, 10).dx;
  Arena arena(0);
  Context ctx{arena};
  const Tensor xt = tensor(x, {4, 20});
  swiglu_backward(ctx, xt, tensor(dy, {4, 10}), xt);
  EXPECT_EQ(x, expected);
}

TEST(SwiGluOp, NonFiniteInputsDoNotHide) {
  const auto r = run<float>({NAN, 1, 1, NAN}, {1, 1}, 1, 2);
  EXPECT_TRUE(std::isnan(r.y[0]));
  EXPECT_TRUE(std::isnan(r.y[1]));
}

TEST(SwiGluOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(2 * 700 * 48, 7), dy = random_normal<float>(700 * 48, 9);
  set_thread_count(1);
  const auto one = run<float>(x, dy, 700, 48);
  set_thread_count(2);
  const auto two = run<float>(x, dy, 700, 48);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
}

}  // namespace
}  // namespace kata
