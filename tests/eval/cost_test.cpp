#include "eval/cost.h"

#include "eval/tiny_suite.h"
#include "tasks/sources.h"

namespace kata {
namespace {

TEST(StepOrder, AgreesWithTheSource) {
  const test::TinySuite tiny;
  const StepOrder order(tiny.suite);
  const auto source = make_train_source(run_config(tiny.suite, tiny.suite.models[0], 1));
  const ModelCost cost{{1, 100}, {}};
  double sum = 0;
  for (int64_t step = 0; step < 23; ++step) {
    const size_t segment = order.segment(step);
    EXPECT_EQ(source->shape(step).length, segment == 0 ? 16 : 24) << step;
    EXPECT_EQ(order.seconds(cost, step, step + 1), cost.step[segment]) << step;
    EXPECT_EQ(order.seconds(cost, 0, step), sum) << step;
    sum += cost.step[segment];
  }
  EXPECT_EQ(order.seconds(cost, 5, 23), sum - order.seconds(cost, 0, 5));
}

TEST(Cost, EveryKindOfWorkTakesTime) {
  const test::TinySuite tiny;
  Monitor monitor(0, [] { return false; });
  const ModelCost cost = measure_cost(tiny.suite, tiny.suite.models[1], grid_of(tiny.suite), monitor);
  ASSERT_EQ(cost.step.size(), 2u);
  ASSERT_EQ(cost.example.size(), 2u);
  for (const double seconds : {cost.step[0], cost.step[1], cost.example[0], cost.example[1]}) {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 60);
  }
}

TEST(Cost, IsNotMeasuredFurtherThanAsked) {
  const test::TinySuite tiny;
  Monitor monitor(0, [] { return true; });
  const ModelCost cost = measure_cost(tiny.suite, tiny.suite.models[1], grid_of(tiny.suite), monitor);
  EXPECT_TRUE(cost.step.empty());
  EXPECT_TRUE(cost.example.empty());
}

TEST(Monitor, KeepsItsFirstReason) {
  bool asked = true;
  Monitor monitor(1e-12, [&] { return asked; });
  EXPECT_EQ(monitor.stop(), Stop::interrupted);
  asked = false;
  EXPECT_EQ(monitor.stop(), Stop::interrupted);
  Monitor late(1e-12, [] { return false; });
  EXPECT_EQ(late.stop(), Stop::out_of_time);
  Monitor free(0, [] { return false; });
  EXPECT_EQ(free.stop(), Stop::none);
  Monitor centuries(1e300, [] { return false; });
  EXPECT_EQ(centuries.stop(), Stop::none);
}

// Pieces of different size fill one bar, whose last line says that nothing is left.
TEST(Monitor, TheBarCountsSeconds) {
  ::testing::internal::CaptureStderr();
  {
    Monitor monitor(0, [] { return false; });
    monitor.expect(10, 2);
    for (const double piece : {0.5, 0.5, 2.0, 1.0, 1.0, 1.0}) monitor.advance(piece, 7, "first");
    EXPECT_EQ(::testing::internal::GetCapturedStderr().find("step 4/5"), std::string::npos);
    ::testing::internal::CaptureStderr();
    for (const double piece : {2.0, 1.0, 1.0}) monitor.advance(piece, 7, "second");
  }
  const std::string end = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(end.find("step 4/5  second"), std::string::npos) << end;
  EXPECT_NE(end.find("step 5/5  second"), std::string::npos) << end;
  EXPECT_NE(end.find("ETA 0:00"), std::string::npos) << end;
}

}  // namespace
}  // namespace kata
