#include "eval/suite_files.h"

#include <set>

#include "config/capacity_config.h"
#include "eval/tiny_suite.h"
#include "support/errors.h"

namespace kata {
namespace {

using test::fails_with;

TEST(SuiteFiles, FindsByNameAndNamesTheNearest) {
  const test::TempDir dir;
  const std::string first = dir / "first", second = dir / "second";
  for (const std::string& folder : {first, second}) std::filesystem::create_directory(folder);
  for (const char* path :
       {"first/mqar.yaml", "second/mqar.yaml", "second/induction.yaml", "second/README.md"})
    test::write_bytes(dir / path, "");
  EXPECT_EQ(find_suite("mqar", {first, second}), first + "/mqar.yaml");
  EXPECT_EQ(find_suite("induction", {first, second}), second + "/induction.yaml");
  EXPECT_TRUE(fails_with(ExitCode::usage,
                         {"--suite mqra: no such suite (did you mean mqar?)", "induction, mqar"}, [&] {
                           find_suite("mqra", {first, second});
                         }));
  for (const char* name : {"", "README", "../first/mqar", "mqar.yaml", "x\ny"})
    EXPECT_TRUE(fails_with(ExitCode::usage, {"no such suite"}, [&] {
      find_suite(name, {first, second});
    })) << name;
  EXPECT_TRUE(fails_with(ExitCode::usage, {"--config"}, [&] { find_suite("mqar", {dir / "nowhere"}); }));
}

TEST(SuiteFiles, ThoseThatShipAreFoundFromTheProgram) {
  EXPECT_NO_THROW(find_suite("mqar", suite_folders()));
}

// Both versions of every suite that ships are valid.
TEST(SuiteFiles, ThoseThatShipLoad) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(KATA_SOURCE_DIR) + "/configs/suites")) {
    if (entry.path().extension() != ".yaml") continue;
    for (const bool quick : {false, true}) {
      if (suite_of_file(entry.path().string()) == capacity_suite) {
        EXPECT_EQ(load_capacity_config(entry.path().string(), quick, {}).suite, entry.path().stem().string());
        continue;
      }
      const SuiteConfig suite = load_suite_config(entry.path().string(), quick, {});
      EXPECT_EQ(suite.suite, entry.path().stem().string());
      EXPECT_GT(suite.steps(), 0);
    }
  }
}

// The published training: 22,624 steps, 778 million tokens.
TEST(SuiteFiles, TheFullRecallSuiteIsThePublishedMixture) {
  const SuiteConfig suite =
      load_suite_config(std::string(KATA_SOURCE_DIR) + "/configs/suites/mqar.yaml", false, {});
  EXPECT_EQ(suite.steps(), 22624);
  int64_t tokens = 0;
  for (const TaskSegment& segment : suite.task.segments) tokens += segment.examples * segment.length;
  EXPECT_EQ(tokens * suite.train.epochs / 1'000'000, 778);
  EXPECT_EQ(suite.model.vocab, 8192);
}

// Every mixer of the table stands in every suite of small models.
TEST(SuiteFiles, HaveARowForEveryPreset) {
  for (const char* name : {"mqar", "overwrite", "mixers"}) {
    const SuiteConfig suite =
        load_suite_config(std::string(KATA_SOURCE_DIR) + "/configs/suites/" + name + ".yaml", false, {});
    std::vector<std::string> rows;
    for (const SuiteModel& model : suite.models) rows.push_back(model.name);
    EXPECT_EQ(rows, preset_names()) << name;
  }
}

// Trained at 256 tokens at most, read to 4096 after one, two and four rewrites.
TEST(SuiteFiles, TheFullOverwriteSuite) {
  const SuiteConfig suite =
      load_suite_config(std::string(KATA_SOURCE_DIR) + "/configs/suites/overwrite.yaml", false, {});
  EXPECT_EQ(suite.task.longest(), 256);
  const std::vector<GridCell> grid = grid_of(suite);
  std::set<std::pair<int64_t, int64_t>> kinds;
  for (const GridCell& cell : grid) kinds.emplace(cell.spec.length, cell.spec.rewrites);
  for (const int64_t length : {256, 1024, 4096})
    for (const int64_t rewrites : {1, 2, 4}) EXPECT_TRUE(kinds.contains({length, rewrites}));
  EXPECT_EQ(grid[0].name(), "256x32r1u16");
  EXPECT_TRUE(grid[0].trained);
  EXPECT_EQ(grid[3].name(), "256x32r2u16-interleaved");
  EXPECT_FALSE(grid[3].trained);
  EXPECT_EQ(grid[0].detail(), "32 r1");
}

}  // namespace
}  // namespace kata
