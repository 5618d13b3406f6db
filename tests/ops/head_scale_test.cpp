#include "ops/head_scale.h"

#include "base/parallel.h"
#include "ops/oracle/head_scale.h"
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
  int64_t rows, heads, width;
  bool per_token;
  double scale = 1;  // of x
};

template <class T>
struct Inputs {
  std::vector<T> s, x, dy;
};

template <class T>
struct Result {
  std::vector<T> y, dx, ds;
};

Inputs<double> random_inputs(const Case& c) {
  const auto n = static_cast<size_t>(c.rows * c.heads * c.width);
  return {random_normal(static_cast<size_t>((c.per_token ? c.rows : 1) * c.heads), 1),
          random_normal(n, 2, c.scale), random_normal(n, 3)};
}

template <class To, class From>
Inputs<To> cast(const Inputs<From>& in) {
  return {cast<To>(in.s), cast<To>(in.x), cast<To>(in.dy)};
}

// y, dx and ds hold `start` before.
template <class T>
Result<T> run(const Case& c, Inputs<T> in, bool accumulate, T start) {
  Result<T> r{std::vector<T>(in.x.size(), start), std::vector<T>(in.x.size(), start),
              std::vector<T>(in.s.size(), start)};
  test::run_op([&](Context& ctx) {
    const Shape shape{c.rows, c.heads, c.width},
        scales = c.per_token ? Shape{c.rows, c.heads} : Shape{c.heads};
    const Tensor s = tensor(in.s, scales), x = tensor(in.x, shape);
    head_scale_forward(ctx, tensor(r.y, shape), s, x, accumulate);
    head_scale_backward(ctx, tensor(r.dx, shape), tensor(r.ds, scales), tensor(in.dy, shape), s, x,
                        accumulate);
  });
  return r;
}

template <class T>
std::vector<T> plus(std::vector<T> x, T add) {
  for (T& value : x) value += add;
  return x;
}

class HeadScale : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  Inputs<double> in = random_inputs(c);
};

TEST_P(HeadScale, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto width = static_cast<size_t>(c.width);
  const auto y = oracle::head_scale<double>(in.s, in.x, width);
  const auto f = [&](const test::ComplexInputs& x) {
    return test::weighted_sum(oracle::head_scale<test::Complex>(x[0], x[1], width), in.dy);
  };
  const auto ds = test::complex_step(f, {in.s, in.x}, 0), dx = test::complex_step(f, {in.s, in.x}, 1);
  for (const bool accumulate : {false, true}) {
    const double start = 3 * c.scale, before = accumulate ? start : 0;
    const auto r = run<double>(c, in, accumulate, start);
    EXPECT_TRUE(close(r.y, plus(y, before), 1e-15)) << accumulate;
    EXPECT_TRUE(close(r.dx, plus(dx, before), 1e-15)) << accumulate;
    EXPECT_TRUE(close(r.ds, plus(ds, c.per_token ? 0 : start), 1e-14)) << accumulate;
  }
}

TEST_P(HeadScale, FloatAgainstDouble) {
  const auto inf = cast<float>(in);
  const auto f = run<float>(c, inf, true, 1);
  const auto d = run<double>(c, cast<double>(inf), true, 1);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-6));
  EXPECT_TRUE(close(f.ds, d.ds, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadScale,
                         ::testing::Values(Case{1, 1, 1, true}, Case{1, 1, 1, false}, Case{3, 2, 7, true},
                                           Case{3, 2, 7, false}, Case{2, 5, 33, true, 1e-6},
                                           Case{2, 5, 33, false, 1e6}, Case{150, 3, 2, false}));

TEST(HeadScaleOp, StridedRowsEqualTheContiguousForm) {
  for (const bool per_token : {true, false}) {
    const Case c{5, 2, 3, per_token};
    auto in = random_inputs(c);
    const auto expected = run<double>(c, in, true, 7.0);
    const int64_t row = c.heads * c.width;
    // Buffers of different widths, filled with 7; the heads start at column `first`.
    const auto place = [&](std::vector<double>& wide, int64_t fused, int64_t first,
                           const std::vector<double>& values) {
      wide.assign(static_cast<size_t>(c.rows * fused), 7);
      for (int64_t r = 0; r < c.rows && !values.empty(); ++r)
        std::copy_n(values.begin() + r * row, row, wide.begin() + r * fused + first);
      return tensor(wide, {c.rows, fused}).columns(first, first + row).split_last(c.heads, c.width);
    };
    std::vector<double> wx, wy, wd, wdx, want, ds(in.s.size(), 7);
    const Tensor x = place(wx, 11, 3, in.x), dy = place(wd, 9, 1, in.dy);
    const Tensor y = place(wy, 9, 2, {}), dx = place(wdx, 10, 4, {});
    test::run_op([&](Context& ctx) {
      const Shape scales = per_token ? Shape{c.rows, c.heads} : Shape{c.heads};
      const Tensor s = tensor(in.s, scales);
      head_scale_forward(ctx, y, s, x, true);
      head_scale_backward(ctx, dx, tensor(ds, scales), dy, s, x, true);
    });
    place(want, 9, 2, expected.y);
    EXPECT_EQ(wy, want);
    place(want, 10, 4, expected.dx);
    EXPECT_EQ(wdx, want);
    EXPECT_EQ(ds, expected.ds);
  }
}

TEST(HeadScaleOp, MayOverwriteItsInputs) {
  const Case c{4, 3, 5, true};
  auto in = cast<float>(random_inputs(c));
  const auto expected = run<float>(c, in, false, 0);
  const Shape shape{4, 3, 5};
  const Tensor s = tensor(in.s, {4, 3}), x = tensor(in.x, shape), dy = tensor(in.dy, shape);
  std::vector<float> ds(in.s.size());
  Arena arena(0);
  Context ctx{arena};
  head_scale_backward(ctx, dy, tensor(ds, {4, 3}), dy, s, x, false);
  EXPECT_EQ(in.dy, expected.dx);
  EXPECT_EQ(ds, expected.ds);
  head_scale_forward(ctx, x, s, x, false);
  EXPECT_EQ(in.x, expected.y);
}

TEST(HeadScaleOp, ThreadCountChangesNoBit) {
  const Case c{1000, 3, 16, false};
  const auto in = cast<float>(random_inputs(c));
  set_thread_count(1);
  const auto one = run<float>(c, in, true, 1);
  set_thread_count(2);
  const auto two = run<float>(c, in, true, 1);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.ds, two.ds);
}

}  // namespace
}  // namespace kata
