#include "ops/matmul.h"

#include "base/parallel.h"
#include "ops/oracle/matmul.h"
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
  int64_t m, n, k;
  double scale;
};

template <class T>
struct Result {
  std::vector<T> y, dx, dw;
};

// y starts as NaN, which must not leak; dx is overwritten, dw starts at zero.
template <class T>
Result<T> run(std::vector<T> x, std::vector<T> w, std::vector<T> dy, const Case& c) {
  Result<T> r{std::vector<T>(dy.size(), NAN), std::vector<T>(x.size(), NAN), std::vector<T>(w.size())};
  test::run_op([&](Context& ctx) {
    const Tensor xt = tensor(x, {c.m, c.k}), wt = tensor(w, {c.n, c.k}), dyt = tensor(dy, {c.m, c.n});
    matmul_forward(ctx, tensor(r.y, {c.m, c.n}), xt, wt);
    matmul_backward_input(ctx, tensor(r.dx, {c.m, c.k}), dyt, wt, false);
    matmul_backward_weight(ctx, tensor(r.dw, {c.n, c.k}), dyt, xt);
  });
  return r;
}

std::vector<double> transposed(const std::vector<double>& a, size_t columns) {
  const size_t rows = a.size() / columns;
  std::vector<double> b(a.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) b[j * rows + i] = a[i * columns + j];
  return b;
}

class Matmul : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  size_t m = static_cast<size_t>(c.m), n = static_cast<size_t>(c.n), k = static_cast<size_t>(c.k);
  std::vector<double> x = random_normal(m * k, 1, c.scale), w = random_normal(n * k, 2),
                      dy = random_normal(m * n, 3);
};

TEST_P(Matmul, DoubleAgainstTheOracle) {
  const auto r = run<double>(x, w, dy, c);
  EXPECT_TRUE(close(r.y, oracle::matmul<double>(x, w, k), 1e-14));
  EXPECT_TRUE(close(r.dx, oracle::matmul<double>(dy, transposed(w, k), n), 1e-14));
  EXPECT_TRUE(close(r.dw, oracle::matmul<double>(transposed(dy, n), transposed(x, k), m), 1e-14));
}

TEST_P(Matmul, DoubleGradientsAgainstTheComplexStep) {
  if (m * n * k > 2000) return;  // compared with the oracle's products instead
  const auto r = run<double>(x, w, dy, c);
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(oracle::matmul<test::Complex>(in[0], in[1], k), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, w}, 0), 1e-13));
  EXPECT_TRUE(close(r.dw, test::complex_step(f, {x, w}, 1), 1e-13));
}

TEST_P(Matmul, FloatAgainstDouble) {
  const auto xf = cast<float>(x), wf = cast<float>(w), gf = cast<float>(dy);
  const auto f = run<float>(xf, wf, gf, c);
  const auto d = run<double>(cast<double>(xf), cast<double>(wf), cast<double>(gf), c);
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-6));
  EXPECT_TRUE(close(f.dw, d.dw, 1e-6));
}

// The larger ones are cut into blocks: rows, columns, partial sums of dw, none of them even.
INSTANTIATE_TEST_SUITE_P(Shapes, Matmul,
                         ::testing::Values(Case{1, 1, 1, 1}, Case{1, 7, 3, 1}, Case{4, 5, 6, 1},
                                           Case{5, 9, 11, 1e-8}, Case{5, 9, 11, 1e8}, Case{1, 803, 1300, 1},
                                           Case{301, 97, 130, 1}, Case{67, 1601, 37, 1},
                                           Case{1291, 70, 33, 1}, Case{2049, 530, 5, 1}));

TEST(MatmulOp, CentralDifference) {
  const Case c{3, 4, 5, 1};
  const auto x = random_normal(15, 1), w = random_normal(20, 2), dy = random_normal(12, 3);
  const auto r = run<double>(x, w, dy, c);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], in[1], dy, c).y, dy);
  };
  const auto ex = random_normal(15, 4), ew = random_normal(20, 5);
  EXPECT_NEAR(test::central_difference(f, {x, w}, 0, ex, 1e-3), test::weighted_sum(r.dx, ex), 1e-9);
  EXPECT_NEAR(test::central_difference(f, {x, w}, 1, ew, 1e-3), test::weighted_sum(r.dw, ew), 1e-9);
}

TEST(MatmulOp, ResidualIsAddedAlsoInPlace) {
  for (const int64_t m : {1, 70}) {  // the two ways of computing
    const int64_t n = 9, k = 4;
    auto x = random_normal(static_cast<size_t>(m * k), 1), w = random_normal(static_cast<size_t>(n * k), 2),
         residual = random_normal(static_cast<size_t>(m * n), 3);
    auto expected = oracle::matmul<double>(x, w, static_cast<size_t>(k));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += residual[i];
    std::vector<double> y(expected.size(), NAN), in_place = residual;
    test::run_op([&](Context& ctx) {
      matmul_forward(ctx, tensor(y, {m, n}), tensor(x, {m, k}), tensor(w, {n, k}), tensor(residual, {m, n}));
      const Tensor same = tensor(in_place, {m, n});
      matmul_forward(ctx, same, tensor(x, {m, k}), tensor(w, {n, k}), same);
    });
    EXPECT_TRUE(close(y, expected, 1e-14));
    EXPECT_EQ(y, in_place);
  }
}

TEST(MatmulOp, ColumnViewsAndAccumulationTouchNothingElse) {
  for (const int64_t m : {3, 600}) {
    const int64_t n = 8, k = 5, wide = 20;
    const auto count = [](int64_t rows, int64_t columns) { return static_cast<size_t>(rows * columns); };
    auto x = random_normal(count(m, wide), 1), w = random_normal(count(n, k), 2),
         dy = random_normal(count(m, wide), 3), residual = random_normal(count(m, wide), 4);
    std::vector<double> y(x.size(), 7), dx(x.size(), 7), dw(w.size(), 7);
    test::run_op([&](Context& ctx) {
      const Shape all{m, wide};
      const Tensor xv = tensor(x, all).columns(3, 3 + k), dyv = tensor(dy, all).columns(6, 6 + n);
      matmul_forward(ctx, tensor(y, all).columns(2, 2 + n), xv, tensor(w, {n, k}),
                     tensor(residual, all).columns(9, 9 + n));
      matmul_backward_input(ctx, tensor(dx, all).columns(4, 4 + k), dyv, tensor(w, {n, k}), true);
      matmul_backward_weight(ctx, tensor(dw, {n, k}), dyv, xv);
    });
    std::vector<double> px, pdy;
    for (int64_t r = 0; r < m; ++r) {
      px.insert(px.end(), x.begin() + r * wide + 3, x.begin() + r * wide + 3 + k);
      pdy.insert(pdy.end(), dy.begin() + r * wide + 6, dy.begin() + r * wide + 6 + n);
    }
    const auto expected = run<double>(px, w, pdy, {m, n, k, 1});
    for (int64_t r = 0; r < m; ++r)
      for (int64_t j = 0; j < wide; ++j) {
        const size_t at = count(r, wide) + static_cast<size_t>(j);
        const bool in_y = j >= 2 && j < 2 + n, in_dx = j >= 4 && j < 4 + k;
        const double want_y =
            in_y ? expected.y[count(r, n) + static_cast<size_t>(j - 2)] + residual[at + 7] : 7;
        const double want_dx = in_dx ? expected.dx[count(r, k) + static_cast<size_t>(j - 4)] + 7 : 7;
        ASSERT_NEAR(y[at], want_y, 1e-12) << r << " " << j;
        ASSERT_NEAR(dx[at], want_dx, 1e-12) << r << " " << j;
      }
    for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(dw[i], expected.dw[i] + 7, 1e-11);
  }
}

TEST(MatmulOp, ThreadCountChangesNoBit) {
  for (const Case& c : {Case{3000, 70, 40, 1}, Case{130, 1500, 64, 1}, Case{1, 3000, 800, 1}}) {
    const auto x = random_normal<float>(static_cast<size_t>(c.m * c.k), 1),
               w = random_normal<float>(static_cast<size_t>(c.n * c.k), 2),
               dy = random_normal<float>(static_cast<size_t>(c.m * c.n), 3);
    set_thread_count(1);
    const auto one = run<float>(x, w, dy, c);
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      const auto more = run<float>(x, w, dy, c);
      EXPECT_EQ(one.y, more.y);
      EXPECT_EQ(one.dx, more.dx);
      EXPECT_EQ(one.dw, more.dw);
    }
  }
  set_thread_count(2);
}

TEST(MatmulOp, NoRowsAreNoWork) {
  std::vector<float> none, w(6, 1), dw(6, 5);
  test::run_op([&](Context& ctx) {
    matmul_forward(ctx, tensor(none, {0, 2}), tensor(none, {0, 3}), tensor(w, {2, 3}));
    matmul_backward_weight(ctx, tensor(dw, {2, 3}), tensor(none, {0, 2}), tensor(none, {0, 3}));
  });
  EXPECT_EQ(dw, std::vector<float>(6, 5));
}

TEST(MatmulOp, PartialSumsDoNotFallWithMoreRows) {
  for (const int64_t n : {1, 300, 513, 3000, 9000}) {
    int64_t before = 0;
    for (int64_t m = 0; m < 9000; m += 37) {
      const int64_t now = cpu::matmul_partials({m, n, 16, 16, n});
      EXPECT_GE(now, before) << m << " " << n;
      before = now;
    }
  }
}

TEST(MatmulOp, LargeStride) {
  const int64_t m = 9, n = 3, k = 2, stride = int64_t{1} << 28;  // the last row starts at 2^31
  test::SparseArray<float> x(m * stride), y(m * stride);
  KATA_SKIP_UNLESS_MAPPED(x);
  KATA_SKIP_UNLESS_MAPPED(y);
  std::vector<float> w = {1, 2, 3, 4, 5, 6}, dw(6);
  x[(m - 1) * stride] = 10;
  x[(m - 1) * stride + 1] = 1;
  test::run_op([&](Context& ctx) {
    const Tensor xv = x.tensor({m, stride}).columns(0, k), yv = y.tensor({m, stride}).columns(0, n);
    matmul_forward(ctx, yv, xv, tensor(w, {n, k}));
    matmul_backward_weight(ctx, tensor(dw, {n, k}), yv, xv);
    matmul_backward_input(ctx, xv, yv, tensor(w, {n, k}), false);
  });
  EXPECT_EQ(y[(m - 1) * stride + 2], 56);
  EXPECT_EQ(dw, (std::vector<float>{120, 12, 340, 34, 560, 56}));
  EXPECT_EQ(x[(m - 1) * stride + 1], 2 * 12 + 4 * 34 + 6 * 56);
}

}  // namespace
}  // namespace kata
