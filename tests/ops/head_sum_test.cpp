#include "ops/head_sum.h"

#include "base/parallel.h"
#include "ops/oracle/head_sum.h"
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
  double scale = 1;
};

template <class T>
std::vector<T> run(const Case& c, std::vector<T> x) {
  std::vector<T> y(static_cast<size_t>(c.rows * c.width), T(NAN));
  test::run_op([&](Context& ctx) {
    head_sum(ctx, tensor(y, {c.rows, c.width}), tensor(x, {c.rows, c.heads, c.width}));
  });
  return y;
}

class HeadSum : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  std::vector<double> x = random_normal(static_cast<size_t>(c.rows * c.heads * c.width), 1, c.scale);
};

TEST_P(HeadSum, DoubleAgainstTheOracleAndFloatAgainstDouble) {
  const auto heads = static_cast<size_t>(c.heads), width = static_cast<size_t>(c.width);
  EXPECT_TRUE(close(run<double>(c, x), oracle::head_sum<double>(x, heads, width), 1e-15));
  const auto xf = cast<float>(x);
  EXPECT_TRUE(close(run<float>(c, xf), run<double>(c, cast<double>(xf)), 1e-6));
}

// What it is for: with b shared by all heads, the gradient of <shared b, g> is the sum over heads of g.
TEST_P(HeadSum, IsTheGradientOfSharing) {
  const auto heads = static_cast<size_t>(c.heads), width = static_cast<size_t>(c.width);
  const auto b = random_normal(static_cast<size_t>(c.rows * c.width), 2);
  const auto f = [&](const test::ComplexInputs& in) {
    std::vector<test::Complex> shared(x.size());
    for (size_t i = 0; i < x.size(); ++i) shared[i] = in[0][i / (heads * width) * width + i % width];
    return test::weighted_sum(shared, x);
  };
  EXPECT_TRUE(close(run<double>(c, x), test::complex_step(f, {b}, 0), 1e-14));
}

INSTANTIATE_TEST_SUITE_P(Shapes, HeadSum,
                         ::testing::Values(Case{1, 1, 1}, Case{3, 1, 5}, Case{1, 4, 7}, Case{3, 5, 33, 1e-20},
                                           Case{2, 24, 16, 1e20}, Case{150, 3, 2}));

TEST(HeadSumOp, WritesItsColumnsOnly) {
  const int64_t fused = 9, first = 2;
  const Case c{5, 3, 4};
  auto x = random_normal(60, 1);
  const auto expected = run<double>(c, x);
  std::vector<double> wide(static_cast<size_t>(c.rows * fused), 7);
  Arena arena(0);
  Context ctx{arena};
  head_sum(ctx, tensor(wide, {c.rows, fused}).columns(first, first + c.width), tensor(x, {5, 3, 4}));
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t j = 0; j < fused; ++j) {
      const bool inside = j >= first && j < first + c.width;
      const double want = inside ? expected[static_cast<size_t>(r * c.width + j - first)] : 7;
      EXPECT_EQ(wide[static_cast<size_t>(r * fused + j)], want) << r << " " << j;
    }
}

TEST(HeadSumOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(1000 * 48, 7);
  set_thread_count(1);
  const auto one = run<float>({1000, 3, 16}, x);
  set_thread_count(2);
  EXPECT_EQ(one, run<float>({1000, 3, 16}, x));
}

}  // namespace
}  // namespace kata
