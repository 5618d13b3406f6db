// The tools that other tests run programs with.
#include "support/run_program.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"

namespace kata {
namespace {

using test::run_in_child;
using test::run_program;

TEST(RunProgram, GivesOutputsAndExitCode) {
  const auto result = run_program({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_FALSE(result.timed_out);
}

TEST(RunProgram, FeedsMoreThanAPipeHolds) {
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(run_program({"/bin/cat"}, {.input = text}).out, text);
  EXPECT_EQ(run_program({"/bin/true"}, {.input = text}).exit_code, 0);
}

TEST(RunProgram, SetsAndRemovesVariablesAndTheFolder) {
  const auto result =
      run_program({"/bin/sh", "-c", "echo $KATA_A-$HOME-; pwd"},
                  {.environment = {{"KATA_A", "1"}, {"HOME", std::nullopt}}, .folder = "/usr"});
  EXPECT_EQ(result.out, "1--\n/usr\n");
}

TEST(RunProgram, KillsWhatTakesTooLongWithItsChildren) {
  const auto result = run_program({"/bin/sh", "-c", "sleep 100; true"}, {.timeout_s = 0.1});
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGKILL);
}

TEST(RunProgram, SignalsAfterAMarkWasPrinted) {
  test::Program program(
      {"/bin/sh", "-c", "trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.01; done"});
  EXPECT_TRUE(program.wait_for("ready"));
  EXPECT_FALSE(program.wait_for("never printed", 0.05));
  program.signal(SIGTERM);
  const auto result = program.wait();
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.out, "ready\ncaught\n");
}

TEST(RunProgram, LimitsFileSizeAndChangesUser) {
  const test::TempDir folder;
  const auto limited = run_program(
      {"/bin/sh", "-c", "trap '' XFSZ; head -c 5000 /dev/zero > " + folder / "x"}, {.file_size_limit = 4096});
  EXPECT_NE(limited.exit_code, 0);
  EXPECT_EQ(std::filesystem::file_size(folder / "x"), 4096u);
  if (::geteuid() != 0) GTEST_SKIP() << "only root may change the user";
  EXPECT_EQ(run_program({"/usr/bin/id", "-u"}, {.user = 65534}).out, "65534\n");
}

TEST(RunProgram, AProgramThatIsNotThereIsAFaultOfTheTest) {
  EXPECT_THROW(run_program({"/no/such/program"}), std::logic_error);
}

TEST(RunInChild, GivesCodeTextAndSignal) {
  EXPECT_EQ(run_in_child([] { return 4; }).exit_code, 4);
  const auto failed = run_in_child([]() -> int { fail(ExitCode::data, "text of {}", "the error"); });
  EXPECT_EQ(failed.exit_code, 3);
  EXPECT_EQ(failed.err, "text of the error");
  EXPECT_EQ(run_in_child([] { return ::raise(SIGKILL); }).signal, SIGKILL);
}

}  // namespace
}  // namespace kata
