#include "ops/short_conv.h"

#include "base/parallel.h"
#include "ops/oracle/short_conv.h"
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

struct Case {
  int64_t batch, time, channels, taps;
  double scale;

  size_t count() const { return static_cast<size_t>(batch * time * channels); }
  size_t weights() const { return static_cast<size_t>(channels * taps); }
};

template <class T>
struct Result {
  std::vector<T> y, dx, dw;
};

template <class T>
Result<T> run(std::vector<T> x, std::vector<T> w, std::vector<T> dy, const Case& c) {
  Result<T> r{std::vector<T>(x.size(), NAN), std::vector<T>(x.size(), NAN), std::vector<T>(w.size())};
  test::run_op([&](Context& ctx) {
    const Shape shape{c.batch, c.time, c.channels}, filter{c.channels, c.taps};
    short_conv_forward(ctx, tensor(r.y, shape), tensor(x, shape), tensor(w, filter));
    short_conv_backward(ctx, tensor(r.dx, shape), tensor(r.dw, filter), tensor(dy, shape), tensor(x, shape),
                        tensor(w, filter));
  });
  return r;
}

class ShortConv : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  std::vector<double> x = random_normal(c.count(), 1, c.scale), w = random_normal(c.weights(), 2),
                      dy = random_normal(c.count(), 3);

  template <class S>
  std::vector<S> exact(const std::vector<S>& in, const std::vector<S>& weight) const {
    return oracle::short_conv<S>(in, weight, static_cast<size_t>(c.time), static_cast<size_t>(c.channels));
  }
};

TEST_P(ShortConv, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, w, dy, c);
  EXPECT_TRUE(close(r.y, exact(x, w), 1e-14));
  if (c.count() > 500) return;  // gradients of this size: in the next test
  const auto f = [&](const test::ComplexInputs& in) { return test::weighted_sum(exact(in[0], in[1]), dy); };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, w}, 0), 1e-12));
  EXPECT_TRUE(close(r.dw, test::complex_step(f, {x, w}, 1), 1e-12));
}

// For every size: the derivative of the oracle along directions, by the complex step.
TEST_P(ShortConv, DoubleGradientsAlongDirections) {
  const auto r = run<double>(x, w, dy, c);
  const auto along = [&](const std::vector<double>& ex, const std::vector<double>& ew) {
    std::vector<test::Complex> xc, wc;
    for (size_t i = 0; i < x.size(); ++i) xc.emplace_back(x[i], 1e-30 * ex[i]);
    for (size_t i = 0; i < w.size(); ++i) wc.emplace_back(w[i], 1e-30 * ew[i]);
    return test::weighted_sum(exact(xc, wc), dy).imag() / 1e-30;
  };
  for (uint64_t seed = 10; seed < 14; ++seed) {
    const auto ex = random_normal(x.size(), seed), ew = random_normal(w.size(), seed + 10);
    const double dx = test::weighted_sum(r.dx, ex), dw = test::weighted_sum(r.dw, ew);
    const double size = std::sqrt(test::weighted_sum(r.dx, r.dx)) + std::sqrt(test::weighted_sum(r.dw, r.dw));
    EXPECT_NEAR(along(ex, std::vector<double>(w.size())), dx, 1e-11 * size);
    EXPECT_NEAR(along(std::vector<double>(x.size()), ew), dw, 1e-11 * size);
  }
}

TEST_P(ShortConv, FloatAgainstDouble) {
  const auto xf = cast<float>(x), wf = cast<float>(w), gf = cast<float>(dy);
  const auto f = run<float>(xf, wf, gf, c);
  const auto d = run<double>(cast<double>(xf), cast<double>(wf), cast<double>(gf), c);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 2e-6));
  EXPECT_TRUE(close(f.dw, d.dw, 2e-6));
}

// One step after the other from an empty window, and from the window of a prefix.
TEST_P(ShortConv, StepsEqualTheForward) {
  const auto whole = run<double>(x, w, dy, c).y;
  for (const int64_t cut : {int64_t{0}, c.time / 2, c.time - 1}) {
    std::vector<double> prefix, window(static_cast<size_t>(c.batch * (c.taps - 1) * c.channels), NAN);
    for (int64_t b = 0; b < c.batch; ++b) {
      const auto start = x.begin() + b * c.time * c.channels;
      prefix.insert(prefix.end(), start, start + cut * c.channels);
    }
    const size_t row = static_cast<size_t>(c.batch * c.channels);
    std::vector<double> in(row), out(row);
    Arena arena(0);
    Context ctx{arena};
    const Tensor state = tensor(window, {c.batch, c.taps - 1, c.channels});
    short_conv_window(ctx, state, tensor(prefix, {c.batch, cut, c.channels}));
    for (int64_t t = cut; t < c.time; ++t) {
      const auto at = [&](size_t i) {  // element i of [batch, channels] at time t
        const int64_t b = static_cast<int64_t>(i) / c.channels, ch = static_cast<int64_t>(i) % c.channels;
        return static_cast<size_t>((b * c.time + t) * c.channels + ch);
      };
      for (size_t i = 0; i < row; ++i) in[i] = x[at(i)];
      short_conv_step(ctx, tensor(out, {c.batch, c.channels}), tensor(in, {c.batch, c.channels}), state,
                      tensor(w, {c.channels, c.taps}));
      for (size_t i = 0; i < row; ++i)
        ASSERT_NEAR(out[i], whole[at(i)], 1e-14 * c.scale * 10) << cut << " " << t << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ShortConv,
                         ::testing::Values(Case{1, 1, 1, 4, 1}, Case{1, 1, 3, 1, 1}, Case{2, 7, 5, 4, 1},
                                           Case{3, 2, 4, 4, 1}, Case{1, 9, 3, 2, 1e3}, Case{2, 9, 3, 3, 1e-6},
                                           Case{1, 20, 2, 16, 1}, Case{1, 6, 2, 7, 1}, Case{3, 300, 5, 4, 1},
                                           Case{2, 130, 131, 4, 1}, Case{600, 1, 2, 4, 1}));

TEST(ShortConvOp, CentralDifference) {
  const Case c{2, 6, 3, 4, 1};
  const auto x = random_normal(c.count(), 1), w = random_normal(c.weights(), 2),
             dy = random_normal(c.count(), 3);
  const auto r = run<double>(x, w, dy, c);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], in[1], dy, c).y, dy);
  };
  const auto ex = random_normal(x.size(), 4), ew = random_normal(w.size(), 5);
  EXPECT_NEAR(test::central_difference(f, {x, w}, 0, ex, 1e-5), test::weighted_sum(r.dx, ex), 1e-7);
  EXPECT_NEAR(test::central_difference(f, {x, w}, 1, ew, 1e-5), test::weighted_sum(r.dw, ew), 1e-7);
}

TEST(ShortConvOp, IsCausalToTheBitAndKeepsSequencesApart) {
  const Case c{2, 12, 3, 4, 1};
  auto x = random_normal<float>(c.count(), 1);
  const auto w = random_normal<float>(c.weights(), 2), dy = random_normal<float>(c.count(), 3);
  const auto before = run<float>(x, w, dy, c).y;
  const size_t changed = 5 * 3;  // time 5 of the first sequence
  x[changed] += 1;
  const auto after = run<float>(x, w, dy, c).y;
  for (size_t i = 0; i < before.size(); ++i) {
    const bool reached = i >= changed && i <= changed + 3 * 3 && (i - changed) % 3 == 0;
    EXPECT_EQ(before[i] != after[i], reached) << i;
  }
}

TEST(ShortConvOp, ZerosGiveZeroAndTheLinearGradient) {
  const Case c{1, 3, 1, 2, 1};
  const auto r = run<double>({0, 0, 0}, {2, 6}, {1, 1, 1}, c);
  EXPECT_EQ(r.y, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(r.dx, (std::vector<double>{4, 4, 3}));  // silu'(0) = 1/2
  EXPECT_EQ(r.dw, (std::vector<double>{0, 0}));
}

TEST(ShortConvOp, WeightGradientsAreAdded) {
  const Case c{1, 4, 2, 3, 1};
  auto x = random_normal(c.count(), 1), w = random_normal(c.weights(), 2), dy = random_normal(c.count(), 3);
  const auto r = run<double>(x, w, dy, c);
  std::vector<double> dx(x.size()), dw(w.size(), 5);
  test::run_op([&](Context& ctx) {
    const Shape shape{1, 4, 2};
    short_conv_backward(ctx, tensor(dx, shape), tensor(dw, {2, 3}), tensor(dy, shape), tensor(x, shape),
                        tensor(w, {2, 3}));
  });
  for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(dw[i], r.dw[i] + 5, 1e-13);
}

TEST(ShortConvOp, ThreadCountChangesNoBit) {
  const Case c{3, 301, 140, 4, 1};
  const auto x = random_normal<float>(c.count(), 1), w = random_normal<float>(c.weights(), 2),
             dy = random_normal<float>(c.count(), 3);
  set_thread_count(1);
  const auto one = run<float>(x, w, dy, c);
  set_thread_count(2);
  const auto two = run<float>(x, w, dy, c);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.dw, two.dw);
}

TEST(ShortConvOp, LargeInputOfTheWindow) {
  const int64_t time = (int64_t{1} << 22) + 3, channels = 512;  // above 2^31 elements
  test::SparseArray<float> x(time * channels);
  KATA_SKIP_UNLESS_MAPPED(x);
  x[time * channels - 1] = 3;
  x[(time - 3) * channels] = 1;
  std::vector<float> window(3 * 512, NAN);
  Arena arena(0);
  Context ctx{arena};
  short_conv_window(ctx, tensor(window, {1, 3, channels}), x.tensor({1, time, channels}));
  EXPECT_EQ(window.front(), 1);
  EXPECT_EQ(window.back(), 3);
}

}  // namespace
}  // namespace kata
