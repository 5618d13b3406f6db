#include "ops/global_norm.h"

#include <limits>

#include "base/parallel.h"
#include "ops/oracle/global_norm.h"
#include "support/compare.h"
#include "support/op_runner.h"

namespace kata {
namespace {

using test::cast;
using test::random_normal;
using test::tensor;

template <class T>
double run(std::vector<T> x) {
  double norm = NAN;
  test::run_op([&](Context& ctx) { norm = global_norm(ctx, tensor(x, {static_cast<int64_t>(x.size())})); });
  return norm;
}

class GlobalNorm : public ::testing::TestWithParam<std::pair<size_t, double>> {};

TEST_P(GlobalNorm, AgainstTheOracle) {
  const auto [n, scale] = GetParam();
  const auto x = random_normal(n, 1, scale);
  EXPECT_NEAR(run<double>(x) / oracle::global_norm(x), 1, 1e-13);
  const auto xf = cast<float>(x);
  EXPECT_NEAR(run<float>(xf) / oracle::global_norm(cast<double>(xf)), 1, 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GlobalNorm,
                         ::testing::Values(std::pair{1, 1.0}, std::pair{17, 1e-30}, std::pair{17, 1e30},
                                           std::pair{16384, 1.0}, std::pair{16385, 1.0},
                                           std::pair{100'003, 1.0}));

TEST(GlobalNormOp, ZerosAndNothingHaveLengthZero) {
  EXPECT_EQ(run<float>(std::vector<float>(5)), 0);
  EXPECT_EQ(run<float>({}), 0);
}

TEST(GlobalNormOp, NonFiniteElementsShowWhereverTheyAre) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const size_t place : {0, 1, 16383, 16384, 39'999}) {
    std::vector<float> x(40'000, 1);
    x[place] = NAN;
    EXPECT_TRUE(std::isnan(run<float>(x))) << place;
    x[place] = -inf;
    EXPECT_EQ(run<float>(x), std::numeric_limits<double>::infinity()) << place;
  }
}

TEST(GlobalNormOp, ThreadCountChangesNoBit) {
  const auto x = random_normal<float>(200'001, 3);
  set_thread_count(1);
  const double one = run(x);
  for (const int threads : {2, 3, 8}) {
    set_thread_count(threads);
    EXPECT_EQ(one, run(x)) << threads;
  }
  set_thread_count(2);
}

}  // namespace
}  // namespace kata
