// A run that is killed and resumed is the run that was not, bit for bit.
#include <csignal>
#include <thread>

#include "apps/workspace.h"
#include "base/philox.h"

namespace kata {
namespace {

using test::Program;
using test::Workspace;

std::string final_bytes(const Workspace& w, const std::string& run) {
  return w.read(w.newest(run) + "/model.safetensors") + w.read(w.newest(run) + "/optimizer.safetensors");
}

// Metrics and final weights of the run in `run` equal those of an uninterrupted one in `whole`.
void expect_same_run(const Workspace& w, const std::string& run, const std::string& whole) {
  const auto a = w.metrics(run), b = w.metrics(whole);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], b[i]);
  EXPECT_EQ(w.newest(run).substr(run.size()), w.newest(whole).substr(whole.size()));
  EXPECT_TRUE(final_bytes(w, run) == final_bytes(w, whole)) << "final weights or moments differ";
}

void train_whole(const Workspace& w, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--config", "run.yaml", "--output", "whole"});
  const auto result = w.run("katatrain", more);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  ASSERT_EQ(w.metrics("whole").size(), 40u);
}

TEST(Resume, KilledAtRandomMomentsAgainAndAgain) {
  const Workspace w;
  train_whole(w, {"--set", "train.checkpoint_every=1"});
  const Philox random(static_cast<uint64_t>(1), stream_test);
  int killed = 0, during_save = 0;
  std::vector<std::string> arguments = {"--config", "run.yaml", "--output",
                                        "out",      "--set",    "train.checkpoint_every=1"};
  for (uint64_t round = 0; round < 100; ++round) {
    const bool resume = w.exists("out/checkpoints/latest");
    if (!resume) std::filesystem::remove_all(w.dir / "out");
    auto more = arguments;
    if (resume) more.push_back("--resume");
    Program program(w.argv("katatrain", more), w.in_folder());
    std::this_thread::sleep_for(std::chrono::microseconds(8000 + random.below(round, 30000 + 2000 * round)));
    program.signal(SIGKILL);
    const auto result = program.wait();
    if (result.exit_code == 0) break;
    ASSERT_EQ(result.signal, SIGKILL) << result.err;
    ++killed;
    if (w.exists("out/checkpoints"))
      for (const auto& entry : std::filesystem::directory_iterator(w.dir / "out/checkpoints"))
        during_save += entry.path().filename().string().rfind(".tmp", 0) == 0;
  }
  auto more = arguments;
  more.push_back("--resume");
  const auto last = w.run("katatrain", more);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  expect_same_run(w, "out", "whole");
  EXPECT_GE(killed, 3) << "the run was never interrupted";
  std::printf("killed %d times, %d of them during a save\n", killed, during_save);
}

TEST(Resume, KilledWhileASaveIsUnderWay) {
  const Workspace w;
  train_whole(w, {"--set", "train.checkpoint_every=1"});
  int caught = 0;
  for (int round = 0; round < 60 && caught < 4; ++round) {
    const bool resume = w.exists("out/checkpoints/latest");
    if (!resume) std::filesystem::remove_all(w.dir / "out");
    std::vector<std::string> arguments = {"--config", "run.yaml", "--output",
                                          "out",      "--set",    "train.checkpoint_every=1"};
    if (resume) arguments.push_back("--resume");
    Program program(w.argv("katatrain", arguments), w.in_folder());
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    bool seen = false;
    while (!seen && std::chrono::steady_clock::now() < limit) {
      std::error_code none;
      for (const auto& entry : std::filesystem::directory_iterator(w.dir / "out/checkpoints", none))
        seen = seen || entry.path().filename().string().rfind(".tmp", 0) == 0;
    }
    program.signal(SIGKILL);
    if (program.wait().signal == SIGKILL && seen) ++caught;
  }
  EXPECT_GE(caught, 1) << "no save was ever interrupted";
  std::vector<std::string> arguments = {"--config", "run.yaml", "--output",
                                        "out",      "--set",    "train.checkpoint_every=1"};
  if (w.exists("out/checkpoints/latest"))
    arguments.push_back("--resume");
  else
    std::filesystem::remove_all(w.dir / "out");
  const auto last = w.run("katatrain", arguments);
  ASSERT_EQ(last.exit_code, 0) << last.err;
  expect_same_run(w, "out", "whole");
}

TEST(Resume, SigtermAndSigintSaveAndLeave) {
  const Workspace w;
  int64_t before = 0;
  for (const int signal : {SIGTERM, SIGINT}) {
    std::vector<std::string> arguments = {"--config", "run.yaml", "--output", "out",
                                          "--steps",  "1000000",  "--set",    "train.checkpoint_every=0"};
    if (before > 0) arguments.push_back("--resume");
    Program program(w.argv("katatrain", arguments), w.in_folder());
    ASSERT_TRUE(program.wait_for("/1000000  loss"));
    program.signal(signal);
    const auto result = program.wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    const auto metrics = w.metrics();
    const int64_t step = metrics.back().at("step");
    EXPECT_EQ(step, static_cast<int64_t>(metrics.size()));
    EXPECT_GT(step, before);
    EXPECT_NE(w.newest().find(std::to_string(step)), std::string::npos) << w.newest();
    before = step;
  }
}

TEST(Resume, InStagesAcrossShardsAndEpochsAtEitherThreadCount) {
  const Workspace w;
  train_whole(w, {"--set", "train.threads=1"});
  // The schedule is that of 40 steps throughout, so the stages are cut by time, not by --steps.
  // A stage has a little more time than the one before, so that slow machines get on as well.
  int stages = 0;
  for (bool resume = false; stages < 200; resume = true, ++stages) {
    const std::string minutes = std::to_string(2e-5 * (stages + 1));
    std::vector<std::string> arguments = {"--config",     "run.yaml", "--output", "out",
                                          "--time-limit", minutes,    "--set",    "train.threads=1"};
    if (resume) arguments.push_back("--resume");
    const auto result = w.run("katatrain", arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    if (w.metrics().size() == 40) break;
  }
  EXPECT_GE(stages, 2);
  expect_same_run(w, "out", "whole");
  const auto two =
      w.run("katatrain", {"--config", "run.yaml", "--output", "two", "--set", "train.threads=2"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  expect_same_run(w, "two", "whole");
}

TEST(Resume, CutsMetricsBackToTheCheckpoint) {
  const Workspace w;
  train_whole(w);
  ASSERT_EQ(w.train({}).exit_code, 0);
  std::filesystem::remove_all(w.dir / w.newest());  // the last checkpoint is gone: the one before is used
  const auto result = w.train({"--resume"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("[warn"), std::string::npos) << result.err;
  expect_same_run(w, "out", "whole");
}

TEST(Resume, LongerRunContinues) {
  const Workspace w;
  ASSERT_EQ(w.train({}).exit_code, 0);
  const auto result = w.train({"--resume", "--steps", "44", "--set", "logging.every=1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(w.metrics().size(), 44u);
}

TEST(Resume, AChangedConfigListsItsKeysAndTouchesNothing) {
  const Workspace w;
  ASSERT_EQ(w.train({}).exit_code, 0);
  const std::string before = w.read("out/metrics.jsonl") + w.read("out/config.yaml");
  test::expect_error(w.train({"--resume", "--set", "optimizer.lr=0.5", "--set", "train.seed=6"}), 2,
                     {"optimizer.lr", "0.01", "0.5", "train.seed"});
  EXPECT_EQ(before, w.read("out/metrics.jsonl") + w.read("out/config.yaml"));
}

TEST(Resume, WithoutACheckpointIsAnError) {
  const Workspace w;
  test::expect_error(w.train({"--resume"}), 3, {"out", "checkpoint"});
  EXPECT_FALSE(w.exists("out"));
}

TEST(Resume, AFolderThatHoldsARunIsRefused) {
  const Workspace w;
  ASSERT_EQ(w.train({}).exit_code, 0);
  const std::string before = w.read("out/metrics.jsonl");
  test::expect_error(w.train({}), 2, {"out", "--resume"});
  EXPECT_EQ(before, w.read("out/metrics.jsonl"));
}

TEST(Resume, AFinishedRunHasNothingToDo) {
  const Workspace w;
  ASSERT_EQ(w.train({}).exit_code, 0);
  const std::string before = w.read("out/metrics.jsonl");
  EXPECT_EQ(w.train({"--resume"}).exit_code, 0);
  EXPECT_EQ(before, w.read("out/metrics.jsonl"));
}

}  // namespace
}  // namespace kata
