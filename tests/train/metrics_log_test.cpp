#include "train/metrics_log.h"

#include <cmath>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using nlohmann::ordered_json;
using test::fails_with;

constexpr int64_t all = INT64_MAX;

class MetricsLogTest : public ::testing::Test {
 protected:
  test::TempDir dir;
  const std::string path = dir / "metrics.jsonl";

  // The file after a resume at this step.
  std::string resumed(const std::string& text, int64_t step) {
    write_file_atomic(path, text);
    MetricsLog log(path, step);
    return read_file(path);
  }
};

TEST_F(MetricsLogTest, AppendsOneObjectALineInItsOrder) {
  {
    MetricsLog log(path, -1);
    log.write({{"step", 1}, {"loss", 2.5}, {"a", "x\ny"}});
    log.write({{"step", 2}, {"loss", NAN}, {"grad_norm", INFINITY}, {"deep", {{"x", -INFINITY}}}});
    log.write({{"step", 3}, {"text", "\xFF"}});
    log.sync();
  }
  const std::string first = "{\"step\":1,\"loss\":2.5,\"a\":\"x\\ny\"}\n";
  const std::string second = "{\"step\":2,\"loss\":null,\"grad_norm\":null,\"deep\":{\"x\":null}}\n";
  EXPECT_EQ(read_file(path), first + second + "{\"step\":3,\"text\":\"\xEF\xBF\xBD\"}\n");
  MetricsLog log(path, 2);
  log.write({{"step", 3}});
  EXPECT_EQ(read_file(path), first + second + "{\"step\":3}\n");
  EXPECT_THROW(log.write({{"loss", 1}}), std::logic_error);
}

TEST_F(MetricsLogTest, ResumingCutsBackToTheStep) {
  const std::string text = "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"validation\":1}\n{\"step\":3}\n";
  EXPECT_EQ(resumed(text, all), text);
  EXPECT_EQ(resumed(text, 3), text);
  EXPECT_EQ(resumed(text, 2), text.substr(0, text.rfind("{\"step\":3")));
  EXPECT_EQ(resumed(text, 1), "{\"step\":1}\n");
  EXPECT_EQ(resumed(text, -1), "");
  EXPECT_EQ(resumed("", 5), "");
}

TEST_F(MetricsLogTest, ATornLastLineIsDropped) {
  for (const char* torn : {"{", "{\"step\":2,\"lo", "{\"step\":", "{\"loss\":1}"})
    EXPECT_EQ(resumed(std::string("{\"step\":1}\n") + torn, all), "{\"step\":1}\n") << torn;
  EXPECT_EQ(resumed("{\"step\":1}\n" + std::string(40, '\0'), all), "{\"step\":1}\n");
  EXPECT_EQ(resumed("{\"step\":1}\n{\"step\":2}", all),
            "{\"step\":1}\n{\"step\":2}\n");  // only its end was lost
}

TEST_F(MetricsLogTest, ACorruptLineIsRefusedWithItsNumber) {
  for (const char* bad : {"", "{", "x", "[1]", "{\"loss\":1}", "{\"step\":1.5}", "{\"step\":\"1\"}",
                          "{\"step\":null}", "{\"step\":1} x"}) {
    const std::string text = std::string("{\"step\":1}\n") + bad + "\n{\"step\":3}\n";
    EXPECT_TRUE(fails_with(ExitCode::data, {path + ":2:", "integer \"step\""}, [&] { resumed(text, all); }))
        << bad;
    EXPECT_EQ(read_file(path), text);  // untouched
  }
  const std::string zero = "{\"step\":1}" + std::string(3, '\0') + "\n{\"step\":3}\n";
  EXPECT_TRUE(fails_with(ExitCode::data, {path + ":1:"}, [&] { resumed(zero, all); }));
}

TEST_F(MetricsLogTest, AFullDiskIsAnErrorAndLeavesWholeLines) {
  const auto result = test::run_in_child([&] {
    test::limit_file_size(100);
    MetricsLog log(path, -1);
    for (int step = 1;; ++step) log.write({{"step", step}, {"loss", 1.25}});
    return 0;
  });
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("cannot write a line of 23 bytes to " + path + ": File too large"),
            std::string::npos)
      << result.err;
  const std::string text = read_file(path);
  EXPECT_EQ(text.size(), 4u * 23);
  EXPECT_TRUE(text.ends_with("{\"step\":4,\"loss\":1.25}\n")) << text;
}

TEST_F(MetricsLogTest, PathsThatCannotBeWrittenAreErrors) {
  const auto open = [](const std::string& where) { return [where] { MetricsLog log(where, -1); }; };
  write_file_atomic(path, "");
  EXPECT_TRUE(fails_with(ExitCode::data, {path + "/x", "Not a directory"}, open(path + "/x")));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir.path(), "directory"}, open(dir.path())));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "none/x", "No such file"}, open(dir / "none/x")));
  ::chmod(dir.path().c_str(), 0755);
  ::chmod(path.c_str(), 0444);
  const auto result = test::run_in_child([&] {
    if (!test::become_unprivileged()) return 99;
    MetricsLog log(path, -1);
    return 0;
  });
  if (result.exit_code == 99) GTEST_SKIP() << "this process may not become an unprivileged user";
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace kata
