#include "ops/rmsnorm.h"

#include "base/parallel.h"
#include "ops/oracle/rmsnorm.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"

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

class RmsNorm : public ::testing::TestWithParam<Case> {
 protected:
  size_t rows() const { return static_cast<size_t>(GetParam().rows); }
  size_t width() const { return static_cast<size_t>(GetParam().width); }
  std::vector<double> x = random_normal(rows() * width(), 1, GetParam().scale);
  std::vector<double> w = random_normal(width(), 2);
  std::vector<double> dy = random_normal(rows() * width(), 3);
};

template <class T>
struct Result {
  std::vector<T> y, dx, dw;
};

template <class T>
Result<T> run(std::vector<T> x, std::vector<T> w, std::vector<T> dy, int64_t rows, int64_t width) {
  Result<T> r{std::vector<T>(x.size()), std::vector<T>(x.size()), std::vector<T>(w.size())};
  std::vector<T> rstd(static_cast<size_t>(rows));
  test::run_op([&](Context& ctx) {
    const Shape shape{rows, width};
    rmsnorm_forward(ctx, tensor(r.y, shape), tensor(rstd, {rows}), tensor(x, shape), tensor(w, {width}), eps);
    rmsnorm_backward(ctx, tensor(r.dx, shape), tensor(r.dw, {width}), tensor(dy, shape), tensor(x, shape),
                     tensor(rstd, {rows}), tensor(w, {width}), false);
  });
  return r;
}

TEST_P(RmsNorm, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, w, dy, GetParam().rows, GetParam().width);
  EXPECT_TRUE(close(r.y, oracle::rmsnorm<double>(x, w, eps), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::rmsnorm<test::Complex>(in[0], in[1], eps), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, w}, 0), 1e-12));
  EXPECT_TRUE(close(r.dw, test::complex_step(f, {x, w}, 1), 1e-12));
}

TEST_P(RmsNorm, FloatAgainstDouble) {
  const auto xf = cast<float>(x), wf = cast<float>(w), gf = cast<float>(dy);
  const auto f = run<float>(xf, wf, gf, GetParam().rows, GetParam().width);
  const auto d =
      run<double>(cast<double>(xf), cast<double>(wf), cast<double>(gf), GetParam().rows, GetParam().width);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-5));
  EXPECT_TRUE(close(f.dw, d.dw, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(Case{1, 2, 1}, Case{1, 7, 1}, Case{5, 64, 1}, Case{3, 33, 1e-6},
                                           Case{3, 33, 1e6}, Case{300, 16, 1}));

TEST(RmsNormOp, ZeroRowGivesZero) {
  const auto r = run<float>(std::vector<float>(8), std::vector<float>(8, 1), std::vector<float>(8, 1), 1, 8);
  for (float y : r.y) EXPECT_EQ(y, 0);
  for (float dx : r.dx) EXPECT_NEAR(dx, 1e3f, 1);  // 1 / sqrt(eps)
}

TEST(RmsNormOp, StridedHeadsAndAccumulationEqualTheContiguousForm) {
  const int64_t rows = 4, heads = 2, width = 8, fused = 40;
  auto wide = random_normal<double>(static_cast<size_t>(rows * fused), 4);
  auto w = random_normal<double>(static_cast<size_t>(width), 5);
  auto dy = random_normal<double>(static_cast<size_t>(rows * heads * width), 6);
  std::vector<double> y(dy.size()), rstd(static_cast<size_t>(rows * heads)), dw(w.size()),
      dwide(wide.size(), 1.0);
  test::run_op([&](Context& ctx) {
    const Tensor x = tensor(wide, {rows, fused}).columns(8, 24).split_last(heads, width);
    const Tensor dx = tensor(dwide, {rows, fused}).columns(8, 24).split_last(heads, width);
    const Shape out{rows, heads, width};
    rmsnorm_forward(ctx, tensor(y, out), tensor(rstd, {rows * heads}), x, tensor(w, {width}), eps);
    rmsnorm_backward(ctx, dx, tensor(dw, {width}), tensor(dy, out), x, tensor(rstd, {rows * heads}),
                     tensor(w, {width}), true);
  });
  std::vector<double> packed;
  for (int64_t r = 0; r < rows; ++r)
    packed.insert(packed.end(), wide.begin() + r * fused + 8, wide.begin() + r * fused + 24);
  const auto expected = run<double>(packed, w, dy, rows * heads, width);
  EXPECT_TRUE(close(y, expected.y, 0));
  EXPECT_TRUE(close(dw, expected.dw, 1e-15));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < fused; ++j) {
      const bool inside = j >= 8 && j < 24;
      const double want = inside ? 1 + expected.dx[static_cast<size_t>(r * 16 + j - 8)] : 1;
      EXPECT_NEAR(dwide[static_cast<size_t>(r * fused + j)], want, 1e-14) << r << " " << j;
    }
}

TEST(RmsNormOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(1000 * 48, 7), w = random_normal<float>(48, 8),
             dy = random_normal<float>(1000 * 48, 9);
  set_thread_count(1);
  const auto one = run<float>(x, w, dy, 1000, 48);
  set_thread_count(2);
  const auto two = run<float>(x, w, dy, 1000, 48);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.dw, two.dw);
}

}  // namespace
}  // namespace kata
