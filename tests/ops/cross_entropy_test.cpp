#include "ops/cross_entropy.h"

#include <limits>

#include "base/parallel.h"
#include "ops/oracle/cross_entropy.h"
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

constexpr double loss_scale = 0.37;

struct Case {
  int64_t rows, width, vocab;
  int64_t every;  // one row in `every` is labelled
  double scale;   // of x
};

std::vector<int32_t> targets_of(const Case& c) {
  const Philox random(5, stream_test);
  std::vector<int32_t> targets(static_cast<size_t>(c.rows), -1);
  for (size_t r = 0; r < targets.size(); ++r)
    if ((r + 1) % static_cast<size_t>(c.every) == 0)
      targets[r] = static_cast<int32_t>(random.below(r, static_cast<uint64_t>(c.vocab)));
  return targets;
}

template <class T>
struct Result {
  std::vector<T> forward_losses, losses, dx, dtable;
  std::vector<int32_t> predictions;
};

template <class T>
Result<T> run(std::vector<T> x, std::vector<T> table, std::vector<int32_t> targets, int64_t width) {
  const int64_t rows = static_cast<int64_t>(targets.size());
  const int64_t vocab = static_cast<int64_t>(table.size()) / width;
  Result<T> r{std::vector<T>(targets.size(), NAN), std::vector<T>(targets.size(), NAN),
              std::vector<T>(x.size(), NAN), std::vector<T>(table.size()),
              std::vector<int32_t>(targets.size(), -7)};
  test::run_op([&](Context& ctx) {
    const Tensor xt = tensor(x, {rows, width}), tt = tensor(table, {vocab, width});
    const Tensor labels = tensor(targets, {rows});
    cross_entropy_forward(ctx, tensor(r.forward_losses, {rows}), tensor(r.predictions, {rows}), xt, tt,
                          labels);
    cross_entropy_backward(ctx, tensor(r.losses, {rows}), tensor(r.dx, {rows, width}),
                           tensor(r.dtable, {vocab, width}), xt, tt, labels, loss_scale);
  });
  return r;
}

class CrossEntropy : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  size_t width = static_cast<size_t>(c.width);
  std::vector<double> x = random_normal(static_cast<size_t>(c.rows * c.width), 1, c.scale);
  std::vector<double> table = random_normal(static_cast<size_t>(c.vocab * c.width), 2);
  std::vector<int32_t> targets = targets_of(c);

  template <class S>
  S total(const std::vector<S>& in, const std::vector<S>& rows) const {
    S sum = 0;
    for (const S& loss : oracle::cross_entropy<S>(in, rows, targets, width)) sum += loss * loss_scale;
    return sum;
  }
};

TEST_P(CrossEntropy, DoubleAgainstTheOracle) {
  const auto r = run<double>(x, table, targets, c.width);
  EXPECT_TRUE(close(r.losses, oracle::cross_entropy<double>(x, table, targets, width), 1e-13));
  EXPECT_EQ(r.losses, r.forward_losses);
  const auto z = oracle::matmul<double>(x, table, width);
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto row = z.begin() + static_cast<int64_t>(i) * c.vocab;
    const auto best = std::max_element(row, row + c.vocab) - row;
    EXPECT_EQ(r.predictions[i], targets[i] < 0 ? -1 : best) << i;
  }
}

TEST_P(CrossEntropy, DoubleGradientsAgainstTheComplexStep) {
  if (c.rows * c.vocab * c.width > 3000) return;  // compared along directions instead
  const auto r = run<double>(x, table, targets, c.width);
  const auto f = [&](const test::ComplexInputs& in) { return total(in[0], in[1]); };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, table}, 0), 1e-12));
  EXPECT_TRUE(close(r.dtable, test::complex_step(f, {x, table}, 1), 1e-12));
}

TEST_P(CrossEntropy, DoubleGradientsAlongDirections) {
  const auto r = run<double>(x, table, targets, c.width);
  const auto ex = random_normal(x.size(), 10), et = random_normal(table.size(), 11);
  std::vector<test::Complex> xc, tc;
  for (size_t i = 0; i < x.size(); ++i) xc.emplace_back(x[i], 1e-30 * ex[i]);
  for (size_t i = 0; i < table.size(); ++i) tc.emplace_back(table[i], 1e-30 * et[i]);
  const std::vector<test::Complex> x0(x.begin(), x.end()), t0(table.begin(), table.end());
  const double dx = test::weighted_sum(r.dx, ex), dt = test::weighted_sum(r.dtable, et);
  const double size = std::sqrt(test::weighted_sum(r.dx, r.dx) + test::weighted_sum(r.dtable, r.dtable));
  EXPECT_NEAR(total(xc, t0).imag() / 1e-30, dx, 1e-11 * size);
  EXPECT_NEAR(total(x0, tc).imag() / 1e-30, dt, 1e-11 * size);
}

TEST_P(CrossEntropy, FloatAgainstDouble) {
  const auto xf = cast<float>(x), tf = cast<float>(table);
  const auto f = run<float>(xf, tf, targets, c.width);
  const auto d = run<double>(cast<double>(xf), cast<double>(tf), targets, c.width);
  EXPECT_TRUE(close(f.losses, d.losses, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 2e-6));
  EXPECT_TRUE(close(f.dtable, d.dtable, 2e-6));
  EXPECT_EQ(f.losses, f.forward_losses);
}

// Several tiles of few rows (a large vocabulary), of many rows, with gaps between labels, none labelled.
INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropy,
                         ::testing::Values(Case{1, 1, 1, 1, 1}, Case{1, 3, 5, 1, 1}, Case{7, 4, 9, 1, 1},
                                           Case{7, 4, 9, 2, 1}, Case{5, 4, 9, 6, 1}, Case{6, 3, 7, 1, 1e-6},
                                           Case{6, 3, 7, 1, 20}, Case{300, 2, 20011, 2, 1},
                                           Case{9001, 2, 3, 1, 1}, Case{700, 5, 258, 3, 1}));

TEST(CrossEntropyOp, CentralDifference) {
  const Case c{6, 4, 9, 2, 1};
  const auto x = random_normal(24, 1), table = random_normal(36, 2), ex = random_normal(24, 3),
             et = random_normal(36, 4);
  const auto targets = targets_of(c);
  const auto r = run<double>(x, table, targets, 4);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    double sum = 0;
    for (double loss : run<double>(in[0], in[1], targets, 4).losses) sum += loss * loss_scale;
    return sum;
  };
  EXPECT_NEAR(test::central_difference(f, {x, table}, 0, ex, 1e-5), test::weighted_sum(r.dx, ex), 1e-8);
  EXPECT_NEAR(test::central_difference(f, {x, table}, 1, et, 1e-5), test::weighted_sum(r.dtable, et), 1e-8);
}

TEST(CrossEntropyOp, ZeroInputIsTheUniformDistribution) {
  const auto r = run<float>(std::vector<float>(6), std::vector<float>(24, 1), {3, -1, 0}, 2);
  EXPECT_FLOAT_EQ(r.losses[0], std::log(12.0f));
  EXPECT_EQ(r.losses[1], 0);
  EXPECT_EQ(r.predictions, (std::vector<int32_t>{0, -1, 0}));  // all equal: the lowest id
}

TEST(CrossEntropyOp, TiesGoToTheLowestId) {
  const auto r = run<float>({1}, {2, 5, 1, 5, 5}, {0}, 1);
  EXPECT_EQ(r.predictions[0], 1);
  EXPECT_FLOAT_EQ(r.losses[0], std::log(std::exp(2.f) + 3 * std::exp(5.f) + std::exp(1.f)) - 2);
}

TEST(CrossEntropyOp, HugeLogitsStayExact) {
  const auto r = run<float>({1, 1}, {1e30f, -1e30f, 3, 0}, {0, 1}, 1);
  EXPECT_EQ(r.losses[0], 0);
  EXPECT_EQ(r.losses[1], 2e30f);
  for (float dx : r.dx) EXPECT_TRUE(std::isfinite(dx));
}

TEST(CrossEntropyOp, NonFiniteLogitsGiveANanLossInTheirRowOnly) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {static_cast<float>(NAN), inf}) {
    for (size_t place = 0; place < 40; ++place) {
      std::vector<float> table(40, 1);
      table[place] = 2;
      std::vector<float> x = {1, bad};
      const auto r = run<float>(x, table, {3, 3}, 1);
      EXPECT_TRUE(std::isfinite(r.losses[0]));
      EXPECT_TRUE(std::isnan(r.losses[1])) << bad << " " << place;
      table[place] = bad;  // one bad logit among many
      EXPECT_TRUE(std::isnan(run<float>({1}, table, {3}, 1).losses[0])) << bad << " " << place;
    }
  }
}

TEST(CrossEntropyOp, LabelsAreWorthThemselvesOnly) {  // rows without a label change nothing
  const Case c{40, 3, 11, 5, 1};
  const auto x = random_normal(120, 1), table = random_normal(33, 2);
  const auto targets = targets_of(c);
  std::vector<double> dense_x;
  std::vector<int32_t> dense_targets;
  for (size_t r = 0; r < targets.size(); ++r)
    if (targets[r] >= 0) {
      dense_targets.push_back(targets[r]);
      dense_x.insert(dense_x.end(), &x[3 * r], &x[3 * r] + 3);
    }
  auto holes = x;
  for (size_t r = 0; r < targets.size(); ++r)
    if (targets[r] < 0) holes[3 * r] = NAN;
  const auto sparse = run<double>(holes, table, targets, 3),
             dense = run<double>(dense_x, table, dense_targets, 3);
  EXPECT_EQ(sparse.dtable, dense.dtable);
  size_t at = 0;
  for (size_t r = 0; r < targets.size(); ++r) {
    EXPECT_EQ(sparse.losses[r], targets[r] < 0 ? 0 : dense.losses[at]);
    EXPECT_EQ(sparse.dx[3 * r], targets[r] < 0 ? 0 : dense.dx[3 * at]);
    at += targets[r] >= 0;
  }
}

TEST(CrossEntropyOp, TableGradientsAreAdded) {
  auto x = random_normal(6, 1), table = random_normal(8, 2);
  std::vector<int32_t> targets = {1, 0, 3};
  const auto r = run<double>(x, table, targets, 2);
  std::vector<double> losses(3), dx(6), dtable(8, 5);
  test::run_op([&](Context& ctx) {
    cross_entropy_backward(ctx, tensor(losses, {3}), tensor(dx, {3, 2}), tensor(dtable, {4, 2}),
                           tensor(x, {3, 2}), tensor(table, {4, 2}), tensor(targets, {3}), loss_scale);
  });
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(dtable[i], r.dtable[i] + 5, 1e-14);
}

TEST(CrossEntropyOp, ThreadCountChangesNoBit) {
  for (const Case& c : {Case{1500, 24, 256, 1, 1}, Case{300, 24, 9000, 1, 1}}) {
    const auto x = random_normal<float>(static_cast<size_t>(c.rows * c.width), 1),
               table = random_normal<float>(static_cast<size_t>(c.vocab * c.width), 2);
    set_thread_count(1);
    const auto one = run<float>(x, table, targets_of(c), c.width);
    set_thread_count(2);
    const auto two = run<float>(x, table, targets_of(c), c.width);
    EXPECT_EQ(one.losses, two.losses);
    EXPECT_EQ(one.predictions, two.predictions);
    EXPECT_EQ(one.dx, two.dx);
    EXPECT_EQ(one.dtable, two.dtable);
  }
}

TEST(CrossEntropyOp, TheTileDoesNotGrowWithTheRows) {
  const auto planned = [](int64_t rows) {
    Arena plan;
    Context ctx{plan};
    const int64_t width = 8, vocab = 32000;
    const Tensor x(nullptr, DType::f32, {rows, width}), table(nullptr, DType::f32, {vocab, width});
    cross_entropy_backward(ctx, Tensor(nullptr, DType::f32, {rows}), x, table, x, table,
                           Tensor(nullptr, DType::i32, {rows}), 1);
    return plan.peak();
  };
  EXPECT_LE(planned(100'000) - planned(1000), size_t{100'000} * 8 + 64);  // the list of labelled rows
  EXPECT_LT(planned(100'000), size_t{40} << 20);
}

TEST(CrossEntropyOp, ATargetOutsideTheVocabularyIsRefused) {
  const std::vector<float> x(2, 1), table(6, 1);
  for (const int32_t target : {-2, 3, 1 << 30}) EXPECT_ANY_THROW(run<float>(x, table, {target}, 2)) << target;
}

TEST(CrossEntropyOp, LargeInput) {
  const int64_t width = 4096, rows = (int64_t{1} << 19) + 7;  // above 2^31 elements
  test::SparseArray<float> x(rows * width);
  KATA_SKIP_UNLESS_MAPPED(x);
  std::vector<float> table(static_cast<size_t>(2 * width)), losses(static_cast<size_t>(rows), NAN);
  std::vector<int32_t> targets(static_cast<size_t>(rows), -1);
  targets.back() = 1;
  table.back() = 2;
  x[rows * width - 1] = 3;
  test::run_op([&](Context& ctx) {
    cross_entropy_forward(ctx, tensor(losses, {rows}), Tensor(), x.tensor({rows, width}),
                          tensor(table, {2, width}), tensor(targets, {rows}));
  });
  EXPECT_EQ(losses.front(), 0);
  EXPECT_NEAR(losses.back(), std::log1p(std::exp(-6.0)), 1e-7);
}

}  // namespace
}  // namespace kata
