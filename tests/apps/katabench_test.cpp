// The program through its command line: what it prints and writes, and its exit codes.
#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::ProgramResult;

ProgramResult run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), KATA_BIN_DIR "/katabench");
  return test::run_program(arguments);
}

void expect_refused(int code, const std::string& part, const std::vector<std::string>& arguments) {
  const ProgramResult result = run(arguments);
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

TEST(Katabench, ListsOps) {
  const ProgramResult result = run({"--list"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("matmul\n"), std::string::npos) << result.out;
}

TEST(Katabench, PrintsATableAndWritesTheSameAsJson) {
  const test::TempDir dir;
  const ProgramResult result = run({"l2norm", "rope", "--device", "cpu", "--json", dir / "out.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("roofline"), std::string::npos) << result.out;
  const auto json = nlohmann::json::parse(read_file(dir / "out.json"));
  EXPECT_GT(json["matrix_flops_per_s"], 1e6);
  EXPECT_GT(json["copy_bytes_per_s"], 1e6);
  ASSERT_FALSE(json["rows"].empty());
  for (const auto& row : json["rows"]) {
    EXPECT_TRUE(row["op"] == "l2norm" || row["op"] == "rope") << row;
    EXPECT_GT(row["seconds"], 0) << row;
    EXPECT_NE(result.out.find(row["case"].get<std::string>()), std::string::npos) << row;
  }
}

TEST(Katabench, BadArgumentsAreOneLine) {
  const test::TempDir dir;
  expect_refused(2, "did you mean 'matmul'?", {"mtmul"});
  expect_refused(2, "--list", {"no such op at all"});
  expect_refused(2, "--what", {"--what"});
  expect_refused(2, "expected auto, cpu or cuda[:N]", {"--device", "gpu"});
  expect_refused(2, "expected a file name", {"--json", ""});
  expect_refused(5, "cuda:99", {"--device", "cuda:99"});
  expect_refused(3, "missing/out.json", {"l2norm", "--json", dir / "missing/out.json"});
  expect_refused(3, dir.path(), {"l2norm", "--json", dir.path()});
}

}  // namespace
}  // namespace kata
