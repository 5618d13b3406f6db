#include "ops/adamw.h"

#include "base/parallel.h"
#include "ops/oracle/adamw.h"
#include "support/compare.h"
#include "support/op_runner.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

template <class T>
struct State {
  std::vector<T> p, m, v;
};

AdamWSettings settings_of(const oracle::AdamW& s, int64_t step) {
  return {s.lr, s.beta1, s.beta2, s.eps, s.weight_decay, s.gradient_scale, step};
}

template <class T>
void update(State<T>& state, std::vector<T> g, const AdamWSettings& settings) {
  const Shape flat{static_cast<int64_t>(g.size())};
  test::run_op([&](Context& ctx) {
    adamw(ctx, tensor(state.p, flat), tensor(state.m, flat), tensor(state.v, flat), tensor(g, flat),
          settings);
  });
}

struct Case {
  size_t n;
  double gradient;  // magnitude
  oracle::AdamW settings;
};

class AdamW : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  template <class T>
  State<T> start() const {
    return {random_normal<T>(c.n, 1), std::vector<T>(c.n), std::vector<T>(c.n)};
  }
  template <class T>
  State<T> trained(int steps) const {
    State<T> state = start<T>();
    for (int step = 1; step <= steps; ++step)
      update<T>(state, random_normal<T>(c.n, 100 + static_cast<uint64_t>(step), c.gradient),
                settings_of(c.settings, step));
    return state;
  }
};

TEST_P(AdamW, DoubleAgainstTheOracle) {
  const auto got = trained<double>(7);
  auto want = start<double>();
  for (int step = 1; step <= 7; ++step)
    oracle::adamw(want.p, want.m, want.v, random_normal(c.n, 100 + static_cast<uint64_t>(step), c.gradient),
                  c.settings, step);
  EXPECT_TRUE(close(got.p, want.p, 1e-14));
  EXPECT_TRUE(close(got.m, want.m, 1e-14));
  EXPECT_TRUE(close(got.v, want.v, 1e-14));
}

TEST_P(AdamW, FloatAgainstDouble) {
  const auto f = trained<float>(7);
  const auto d = trained<double>(7);
  EXPECT_TRUE(close(f.p, d.p, 1e-6));
  EXPECT_TRUE(close(f.m, d.m, 1e-6));
  EXPECT_TRUE(close(f.v, d.v, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Settings, AdamW,
                         ::testing::Values(Case{1, 1, {1e-2, 0.9, 0.95, 1e-8, 0.1, 1}},
                                           Case{37, 1, {1e-2, 0.9, 0.95, 1e-8, 0, 0.3}},
                                           Case{37, 1e-9, {1e-2, 0.9, 0.999, 1e-8, 0.1, 1}},
                                           Case{37, 1e12, {1e-2, 0.9, 0.999, 1e-8, 0.1, 1}},
                                           Case{37, 1, {1e-2, 0, 0, 1e-6, 0.5, 1}},
                                           Case{40000, 1, {1e-3, 0.8, 0.99, 1e-8, 0.01, 2}}));

TEST(AdamWOp, FirstStepMovesByTheRateWhateverTheGradient) {
  for (const float g : {1e-3f, 1.0f, 1e6f}) {
    State<float> state{{2}, {0}, {0}};
    update<float>(state, {g}, {.lr = 0.125, .step = 1});
    EXPECT_NEAR(state.p[0], 1.875f, 2e-6) << g;
  }
}

TEST(AdamWOp, DecayIsDecoupledFromTheGradient) {
  State<double> state{{2}, {0}, {0}};
  update<double>(state, {0}, {.lr = 0.1, .weight_decay = 0.5, .step = 1});
  EXPECT_DOUBLE_EQ(state.p[0], 2 * (1 - 0.05));
  EXPECT_EQ(state.m[0], 0);
  EXPECT_EQ(state.v[0], 0);
}

TEST(AdamWOp, ThreadCountChangesNoBit) {
  const auto g = random_normal<float>(100'001, 2);
  State<float> one{random_normal<float>(g.size(), 1), std::vector<float>(g.size()),
                   std::vector<float>(g.size())};
  State<float> two = one;
  const AdamWSettings settings{.lr = 1e-3, .weight_decay = 0.1, .step = 3};
  set_thread_count(1);
  update(one, g, settings);
  set_thread_count(2);
  update(two, g, settings);
  EXPECT_EQ(one.p, two.p);
  EXPECT_EQ(one.m, two.m);
  EXPECT_EQ(one.v, two.v);
}

}  // namespace
}  // namespace kata
