#include "base/log.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace kata {
namespace {

std::string printed(const std::string& level) {
  ::testing::internal::CaptureStderr();
  set_log_level(level);
  logger().debug("d {}", 1);
  logger().info("i");
  logger().warn("w");
  logger().error("e");
  set_log_level("info");
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, PrintsPlainLinesFromItsLevelUp) {
  EXPECT_EQ(printed("debug"), "[debug] d 1\n[info] i\n[warn] w\n[error] e\n");
  EXPECT_EQ(printed("info"), "[info] i\n[warn] w\n[error] e\n");
  EXPECT_EQ(printed("warn"), "[warn] w\n[error] e\n");
  EXPECT_EQ(printed("off"), "");
}

TEST(Log, AnUnknownLevelIsRefusedWithTheList) {
  EXPECT_TRUE(test::fails_with(ExitCode::usage, {"\"warning\"", "trace, debug, info, warn, error or off"},
                               [] { set_log_level("warning"); }));
}

}  // namespace
}  // namespace kata
