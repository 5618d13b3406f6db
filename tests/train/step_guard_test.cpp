#include "train/step_guard.h"

#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace kata {
namespace {

TrainConfig config(int64_t max_skips, double factor = 0) {
  TrainConfig c;
  c.max_skips = max_skips;
  c.outlier_factor = factor;
  return c;
}

TEST(StepGuard, SkipsNonFiniteStepsUpToTheLimit) {
  StepGuard guard(config(2));
  EXPECT_TRUE(guard.admit(1, 2.0, 1.0));
  EXPECT_FALSE(guard.admit(2, NAN, 1.0));
  EXPECT_FALSE(guard.admit(3, 2.0, INFINITY));
  try {
    guard.admit(4, NAN, NAN);
    FAIL() << "a third skip in a row was allowed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numeric);
    const std::string text = error.what();
    EXPECT_NE(text.find("step 4"), std::string::npos) << text;
    EXPECT_NE(text.find("train.max_skips"), std::string::npos) << text;
  }
}

TEST(StepGuard, AGoodStepResetsTheCount) {
  StepGuard guard(config(1));
  for (int64_t step = 0; step < 10; ++step) {
    EXPECT_FALSE(guard.admit(2 * step, NAN, 1));
    EXPECT_TRUE(guard.admit(2 * step + 1, 1, 1));
  }
}

TEST(StepGuard, OutliersAreJudgedAgainstTheRunningMeanAfterAWarmUp) {
  StepGuard guard(config(5, 4));
  EXPECT_TRUE(guard.admit(0, 1, 1000));  // nothing to compare with yet
  StepGuard steady(config(5, 4));
  for (int64_t step = 0; step < 30; ++step) EXPECT_TRUE(steady.admit(step, 1, 1));
  EXPECT_FALSE(steady.admit(30, 1, 4.1));
  EXPECT_TRUE(steady.admit(31, 1, 3.9));
  StepGuard off(config(5, 0));
  for (int64_t step = 0; step < 30; ++step) off.admit(step, 1, 1);
  EXPECT_TRUE(off.admit(30, 1, 1e9));
}

TEST(StepGuard, ItsStateSurvivesACheckpoint) {
  StepGuard a(config(2, 4));
  for (int64_t step = 0; step < 30; ++step) a.admit(step, 1, 1 + 0.01 * static_cast<double>(step));
  a.admit(30, NAN, 1);
  StepGuard b(config(2, 4));
  b.restore(nlohmann::json::parse(a.state().dump()));
  EXPECT_EQ(a.state(), b.state());
  EXPECT_FALSE(b.admit(31, NAN, 1));
  EXPECT_THROW(b.admit(32, NAN, 1), Error);
}

}  // namespace
}  // namespace kata
