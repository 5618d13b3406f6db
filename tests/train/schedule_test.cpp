#include "train/schedule.h"

#include <gtest/gtest.h>

namespace kata {
namespace {

OptimizerConfig optimizer(const std::string& schedule, int64_t warmup) {
  OptimizerConfig o;
  o.lr = 1;
  o.final_lr = 0.1;
  o.schedule = schedule;
  o.warmup = warmup;
  return o;
}

TEST(Schedule, WarmUpIsLinearAndReachesThePeak) {
  for (const char* name : {"constant", "cosine", "wsd"}) {
    const OptimizerConfig o = optimizer(name, 10);
    EXPECT_DOUBLE_EQ(learning_rate(o, 100, 1), 0.1) << name;
    EXPECT_DOUBLE_EQ(learning_rate(o, 100, 5), 0.5) << name;
    EXPECT_DOUBLE_EQ(learning_rate(o, 100, 10), 1) << name;
  }
}

TEST(Schedule, CosineIsHalfwayInTheMiddleAndFinalAtTheEnd) {
  const OptimizerConfig o = optimizer("cosine", 10);
  EXPECT_NEAR(learning_rate(o, 110, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(o, 110, 110), 0.1, 1e-12);
  for (int64_t step = 11; step <= 110; ++step)
    EXPECT_LT(learning_rate(o, 110, step), learning_rate(o, 110, step - 1));
}

TEST(Schedule, StableThenDecay) {
  OptimizerConfig o = optimizer("wsd", 0);
  o.decay_steps = 20;
  EXPECT_DOUBLE_EQ(learning_rate(o, 100, 1), 1);
  EXPECT_DOUBLE_EQ(learning_rate(o, 100, 80), 1);
  EXPECT_NEAR(learning_rate(o, 100, 90), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(o, 100, 100), 0.1, 1e-12);
  o.decay_steps = 0;  // a tenth of the steps
  EXPECT_DOUBLE_EQ(learning_rate(o, 100, 90), 1);
  EXPECT_LT(learning_rate(o, 100, 91), 1);
}

TEST(Schedule, WarmUpLongerThanTheRun) {
  const OptimizerConfig o = optimizer("cosine", 1000);
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 10), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer("wsd", 50), 50, 50), 1);
}

}  // namespace
}  // namespace kata
