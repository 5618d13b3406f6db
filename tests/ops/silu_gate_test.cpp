#include "ops/silu_gate.h"

#include "base/parallel.h"
#include "ops/oracle/silu_gate.h"
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
  double scale;  // of the gate
};

template <class T>
struct Result {
  std::vector<T> y, dx, dg;
};

template <class T>
Result<T> run(std::vector<T> x, std::vector<T> g, std::vector<T> dy, int64_t rows, int64_t width) {
  Result<T> r{std::vector<T>(x.size(), NAN), std::vector<T>(x.size(), NAN), std::vector<T>(x.size(), NAN)};
  test::run_op([&](Context& ctx) {
    const Shape shape{rows, width};
    silu_gate_forward(ctx, tensor(r.y, shape), tensor(x, shape), tensor(g, shape));
    silu_gate_backward(ctx, tensor(r.dx, shape), tensor(r.dg, shape), tensor(dy, shape), tensor(x, shape),
                       tensor(g, shape));
  });
  return r;
}

class SiluGate : public ::testing::TestWithParam<Case> {
 protected:
  int64_t rows = GetParam().rows, width = GetParam().width;
  std::vector<double> x = random_normal(static_cast<size_t>(rows * width), 1);
  std::vector<double> g = random_normal(x.size(), 2, GetParam().scale);
  std::vector<double> dy = random_normal(x.size(), 3);
};

TEST_P(SiluGate, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, g, dy, rows, width);
  EXPECT_TRUE(close(r.y, oracle::silu_gate<double>(x, g), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::silu_gate<test::Complex>(in[0], in[1]), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, g}, 0), 1e-13));
  EXPECT_TRUE(close(r.dg, test::complex_step(f, {x, g}, 1), 1e-13));
}

TEST_P(SiluGate, FloatAgainstDouble) {
  const auto xf = cast<float>(x), gf = cast<float>(g), df = cast<float>(dy);
  const auto f = run<float>(xf, gf, df, rows, width);
  const auto d = run<double>(cast<double>(xf), cast<double>(gf), cast<double>(df), rows, width);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-6));
  EXPECT_TRUE(close(f.dg, d.dg, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SiluGate,
                         ::testing::Values(Case{1, 1, 1}, Case{3, 7, 1}, Case{5, 33, 4}, Case{2, 16, 1e-6},
                                           Case{2, 16, 1e4}, Case{90, 1, 1}));

TEST(SiluGateOp, ZeroGateClosesAndKeepsItsGradient) {
  const auto r = run<double>({4, -3}, {0, 1e3}, {2, 5}, 1, 2);
  EXPECT_EQ(r.y, (std::vector<double>{0, -3e3}));
  EXPECT_EQ(r.dx, (std::vector<double>{0, 5e3}));
  EXPECT_EQ(r.dg, (std::vector<double>{4, -15}));  // silu'(0) = 1/2, silu'(1e3) = 1
}

TEST(SiluGateOp, StridedRowsEqualTheContiguousForm) {
  const int64_t rows = 5, width = 3;
  const Shape shape{rows, width};
  // Each tensor in a buffer of its own width, filled with 7, and its first column there.
  const auto place = [&](std::vector<double>& wide, int64_t fused, int64_t first,
                         const std::vector<double>& values) {
    wide.assign(static_cast<size_t>(rows * fused), 7);
    for (int64_t r = 0; r < rows && !values.empty(); ++r)
      std::copy_n(values.begin() + r * width, width, wide.begin() + r * fused + first);
    return tensor(wide, {rows, fused}).columns(first, first + width);
  };
  const auto x = random_normal(15, 1), g = random_normal(15, 2), dy = random_normal(15, 3);
  const auto expected = run<double>(x, g, dy, rows, width);
  std::vector<double> wx, wg, wd, wy, wdx, wdg, want;
  const Tensor xt = place(wx, 8, 2, x), gt = place(wg, 9, 0, g), dt = place(wd, 4, 1, dy);
  const Tensor yt = place(wy, 5, 2, {}), dxt = place(wdx, 6, 3, {}), dgt = place(wdg, 7, 1, {});
  Arena arena(0);
  Context ctx{arena};
  silu_gate_forward(ctx, yt, xt, gt);
  silu_gate_backward(ctx, dxt, dgt, dt, xt, gt);
  place(want, 5, 2, expected.y);
  EXPECT_EQ(wy, want);
  place(want, 6, 3, expected.dx);
  EXPECT_EQ(wdx, want);
  place(want, 7, 1, expected.dg);
  EXPECT_EQ(wdg, want);
}

TEST(SiluGateOp, MayOverwriteItsInputs) {
  auto x = random_normal<float>(40, 1), g = random_normal<float>(40, 2), dy = random_normal<float>(40, 3);
  const auto expected = run<float>(x, g, dy, 4, 10);
  const Tensor xt = tensor(x, {4, 10}), gt = tensor(g, {4, 10}), dyt = tensor(dy, {4, 10});
  std::vector<float> dg(40);
  Arena arena(0);
  Context ctx{arena};
  silu_gate_backward(ctx, dyt, tensor(dg, {4, 10}), dyt, xt, gt);
  EXPECT_EQ(dy, expected.dx);
  EXPECT_EQ(dg, expected.dg);
  silu_gate_forward(ctx, xt, xt, gt);
  EXPECT_EQ(x, expected.y);
}

TEST(SiluGateOp, NonFiniteInputsDoNotHide) {
  const auto r = run<float>({NAN, 1, 1}, {1, NAN, -INFINITY}, {1, 1, NAN}, 1, 3);
  EXPECT_TRUE(std::isnan(r.y[0]) && std::isnan(r.y[1]));
  EXPECT_TRUE(std::isnan(r.dg[0]) && std::isnan(r.dg[1]) && std::isnan(r.dx[1]));
  EXPECT_TRUE(std::isnan(r.dx[2]) && std::isnan(r.dg[2]));
}

TEST(SiluGateOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(700 * 48, 7), g = random_normal<float>(700 * 48, 8),
             dy = random_normal<float>(700 * 48, 9);
  set_thread_count(1);
  const auto one = run<float>(x, g, dy, 700, 48);
  set_thread_count(2);
  const auto two = run<float>(x, g, dy, 700, 48);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.dg, two.dg);
}

}  // namespace
}  // namespace kata
