#include "ops/sigmoid.h"

#include <limits>

#include "base/parallel.h"
#include "ops/oracle/sigmoid.h"
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
  Result<T> r{std::vector<T>(x.size(), NAN), std::vector<T>(x.size(), NAN)};
  test::run_op([&](Context& ctx) {
    const Shape shape{rows, width};
    sigmoid_forward(ctx, tensor(r.y, shape), tensor(x, shape));
    sigmoid_backward(ctx, tensor(r.dx, shape), tensor(dy, shape), tensor(r.y, shape));
  });
  return r;
}

class Sigmoid : public ::testing::TestWithParam<Case> {
 protected:
  int64_t rows = GetParam().rows, width = GetParam().width;
  std::vector<double> x = random_normal(static_cast<size_t>(rows * width), 1, GetParam().scale);
  std::vector<double> dy = random_normal(x.size(), 2);
};

TEST_P(Sigmoid, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, dy, rows, width);
  EXPECT_TRUE(close(r.y, oracle::sigmoid<double>(x), 1e-15));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::sigmoid<test::Complex>(in[0]), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x}, 0), 1e-13));
}

TEST_P(Sigmoid, FloatAgainstDouble) {
  const auto xf = cast<float>(x), gf = cast<float>(dy);
  const auto f = run<float>(xf, gf, rows, width);
  const auto d = run<double>(cast<double>(xf), cast<double>(gf), rows, width);
  EXPECT_TRUE(close(f.y, d.y, 2e-7));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Sigmoid,
                         ::testing::Values(Case{1, 1, 1}, Case{3, 7, 1}, Case{5, 33, 4}, Case{2, 16, 1e-6},
                                           Case{2, 16, 10}, Case{90, 1, 1}));

template <class T>
class SigmoidEnds : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SigmoidEnds, Floats);

TYPED_TEST(SigmoidEnds, AreExactAndCarryNaN) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> x = {0, 200, -200, 1e30f, -1e30f, infinity, -infinity, T(NAN)};
  const auto r = run<T>(x, std::vector<T>(8, 1), 1, 8);
  EXPECT_EQ(r.y[0], T(0.5));
  EXPECT_EQ(r.dx[0], T(0.25));
  for (const size_t right : {1, 3, 5}) EXPECT_EQ(r.y[right], 1) << x[right];
  for (const size_t left : {2, 4, 6}) {
    EXPECT_GE(r.y[left], 0) << x[left];
    EXPECT_LE(r.y[left], std::max(std::numeric_limits<T>::min(), static_cast<T>(std::exp(-199.0))));
  }
  for (size_t j = 1; j < 7; ++j) EXPECT_NEAR(r.dx[j], 0, 1e-37) << x[j];
  EXPECT_TRUE(std::isnan(r.y[7]));
  EXPECT_TRUE(std::isnan(r.dx[7]));
}

TEST(SigmoidOp, SmallValuesKeepTheirDigits) {
  for (float x = -80; x < 0; x += 0.37f) {
    const auto r = run<float>({x}, {1}, 1, 1);
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(r.y[0] / exact, 1, 5e-7) << x;
    EXPECT_NEAR(r.dx[0] / (exact * (1 - exact)), 1, 1e-6) << x;
  }
}

TEST(SigmoidOp, StridedRowsEqualTheContiguousForm) {
  const int64_t rows = 5, width = 3, fused = 11, first = 4;
  auto wide = random_normal(static_cast<size_t>(rows * fused), 4);
  auto dy = random_normal(static_cast<size_t>(rows * width), 5);
  std::vector<double> y(dy.size()), dwide(static_cast<size_t>(rows * (fused + 2)), 7), packed;
  test::run_op([&](Context& ctx) {
    const Tensor dx = tensor(dwide, {rows, fused + 2}).columns(1, 1 + width);
    sigmoid_forward(ctx, tensor(y, {rows, width}), tensor(wide, {rows, fused}).columns(first, first + width));
    sigmoid_backward(ctx, dx, tensor(dy, {rows, width}), tensor(y, {rows, width}));
  });
  for (int64_t r = 0; r < rows; ++r)
    packed.insert(packed.end(), wide.begin() + r * fused + first, wide.begin() + r * fused + first + width);
  const auto expected = run<double>(packed, dy, rows, width);
  EXPECT_EQ(y, expected.y);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < fused + 2; ++j) {
      const bool inside = j >= 1 && j < 1 + width;
      const double want = inside ? expected.dx[static_cast<size_t>(r * width + j - 1)] : 7;
      EXPECT_EQ(dwide[static_cast<size_t>(r * (fused + 2) + j)], want) << r << " " << j;
    }
}

TEST(SigmoidOp, MayOverwriteItsInputs) {
  auto x = random_normal<float>(40, 1), dy = random_normal<float>(40, 2);
  const auto expected = run<float>(x, dy, 4, 10);
  Arena arena(0);
  Context ctx{arena};
  const Tensor xt = tensor(x, {4, 10}), dyt = tensor(dy, {4, 10});
  sigmoid_forward(ctx, xt, xt);
  EXPECT_EQ(x, expected.y);
  sigmoid_backward(ctx, dyt, dyt, xt);
  EXPECT_EQ(dy, expected.dx);
}

TEST(SigmoidOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(3000 * 16, 7), dy = random_normal<float>(3000 * 16, 9);
  set_thread_count(1);
  const auto one = run<float>(x, dy, 3000, 16);
  set_thread_count(2);
  const auto two = run<float>(x, dy, 3000, 16);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
}

}  // namespace
}  // namespace kata
