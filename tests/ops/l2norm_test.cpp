#include "ops/l2norm.h"

#include "base/parallel.h"
#include "ops/oracle/l2norm.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

constexpr double eps = 1e-6;

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
  std::vector<T> rnorm(static_cast<size_t>(rows));
  test::run_op([&](Context& ctx) {
    const Shape shape{rows, width};
    l2norm_forward(ctx, tensor(r.y, shape), tensor(rnorm, {rows}), tensor(x, shape), eps);
    l2norm_backward(ctx, tensor(r.dx, shape), tensor(dy, shape), tensor(x, shape), tensor(rnorm, {rows}),
                    false);
  });
  return r;
}

class L2Norm : public ::testing::TestWithParam<Case> {
 protected:
  int64_t rows = GetParam().rows, width = GetParam().width;
  std::vector<double> x = random_normal(static_cast<size_t>(rows * width), 1, GetParam().scale);
  std::vector<double> dy = random_normal(x.size(), 2);
};

TEST_P(L2Norm, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, dy, rows, width);
  EXPECT_TRUE(close(r.y, oracle::l2norm<double>(x, static_cast<size_t>(width), eps), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::l2norm<test::Complex>(in[0], static_cast<size_t>(width), eps), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x}, 0), 1e-11));
}

TEST_P(L2Norm, FloatAgainstDouble) {
  const auto xf = cast<float>(x), gf = cast<float>(dy);
  const auto f = run<float>(xf, gf, rows, width);
  const auto d = run<double>(cast<double>(xf), cast<double>(gf), rows, width);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Shapes, L2Norm,
                         ::testing::Values(Case{1, 2, 1}, Case{1, 7, 1}, Case{5, 64, 1}, Case{3, 33, 1e-6},
                                           Case{3, 33, 1e6}, Case{3, 33, 1e12}, Case{300, 3, 1}));

TEST(L2NormOp, CentralDifference) {
  const auto x = random_normal(15, 1), dy = random_normal(15, 2), direction = random_normal(15, 3);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], dy, 3, 5).y, dy);
  };
  EXPECT_NEAR(test::central_difference(f, {x}, 0, direction, 1e-5),
              test::weighted_sum(run<double>(x, dy, 3, 5).dx, direction), 1e-8);
}

TEST(L2NormOp, ZeroRowGivesZero) {
  const auto r = run<float>(std::vector<float>(8), std::vector<float>(8, 1), 1, 8);
  for (float y : r.y) EXPECT_EQ(y, 0);
  for (float dx : r.dx) EXPECT_NEAR(dx, 1e3f, 1);  // 1 / sqrt(eps)
}

TEST(L2NormOp, StridedHeadsAndAccumulationEqualTheContiguousForm) {
  const int64_t rows = 4, heads = 2, width = 8, fused = 40;
  auto wide = random_normal(static_cast<size_t>(rows * fused), 4);
  auto dy = random_normal(static_cast<size_t>(rows * heads * width), 6);
  std::vector<double> y(dy.size()), rnorm(static_cast<size_t>(rows * heads)), dwide(wide.size(), 1.0);
  test::run_op([&](Context& ctx) {
    const Tensor x = tensor(wide, {rows, fused}).columns(8, 24).split_last(heads, width);
    const Tensor dx = tensor(dwide, {rows, fused}).columns(8, 24).split_last(heads, width);
    const Shape out{rows, heads, width};
    l2norm_forward(ctx, tensor(y, out), tensor(rnorm, {rows * heads}), x, eps);
    l2norm_backward(ctx, dx, tensor(dy, out), x, tensor(rnorm, {rows * heads}), true);
  });
  std::vector<double> packed;
  for (int64_t r = 0; r < rows; ++r)
    packed.insert(packed.end(), wide.begin() + r * fused + 8, wide.begin() + r * fused + 24);
  const auto expected = run<double>(packed, dy, rows * heads, width);
  EXPECT_TRUE(close(y, expected.y, 0));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < fused; ++j) {
      const bool inside = j >= 8 && j < 24;
      const double want = inside ? 1 + expected.dx[static_cast<size_t>(r * 16 + j - 8)] : 1;
      EXPECT_NEAR(dwide[static_cast<size_t>(r * fused + j)], want, 1e-14) << r << " " << j;
    }
}

TEST(L2NormOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(1000 * 48, 7), dy = random_normal<float>(1000 * 48, 9);
  set_thread_count(1);
  const auto one = run<float>(x, dy, 1000, 48);
  set_thread_count(2);
  const auto two = run<float>(x, dy, 1000, 48);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
}

TEST(L2NormOp, LargeStride) {
  const int64_t rows = 9, stride = int64_t{1} << 28;  // the last row starts at 2^31
  test::SparseArray<float> x(rows * stride), y(rows * stride);
  KATA_SKIP_UNLESS_MAPPED(x);
  KATA_SKIP_UNLESS_MAPPED(y);
  std::vector<float> rnorm(static_cast<size_t>(rows));
  x[(rows - 1) * stride] = 300;
  x[(rows - 1) * stride + 1] = 400;
  Arena arena(0);
  Context ctx{arena};
  const Tensor xv = x.tensor({rows, stride}).columns(0, 2), yv = y.tensor({rows, stride}).columns(0, 2);
  l2norm_forward(ctx, yv, tensor(rnorm, {rows}), xv, eps);
  EXPECT_FLOAT_EQ(y[(rows - 1) * stride + 1], 0.8f);
  l2norm_backward(ctx, yv, xv, xv, tensor(rnorm, {rows}), false);
  EXPECT_NEAR(y[(rows - 1) * stride + 1], 0, 1e-6);  // a gradient along x is projected out
}

}  // namespace
}  // namespace kata
