#include "data/advice.h"

#include <filesystem>
#include <fstream>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;

TEST(MissingData, NamesTheCommandThatMakesIt) {
  EXPECT_EQ(missing_data_advice("data/lm/tokenizer.model"), "make it with: ./scripts/make_lm_corpus.sh");
  EXPECT_EQ(missing_data_advice("/a/b/data/lm/train-*.bin"), "make it with: ./scripts/make_lm_corpus.sh");
  EXPECT_NE(missing_data_advice("./data/corpus/x.bin").find("katadata tokenize"), std::string::npos);
  for (const char* other : {"data/lmx/a.bin", "xdata/lm/a.bin", "lm/a.bin", "", "a.bin"})
    EXPECT_NE(missing_data_advice(other).find("check the spelling"), std::string::npos) << other;
}

TEST(MissingData, PatternsThatMatchNothing) {
  EXPECT_TRUE(fails_with(ExitCode::data, {"no/data/lm/train-*.bin", "make_lm_corpus.sh"},
                         [] { expand_data_patterns({"no/data/lm/train-*.bin"}); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"elsewhere/*.bin", "check the spelling"},
                         [] { expand_data_patterns({"elsewhere/*.bin"}); }));
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "data/lm");
  std::ofstream(dir / "data/lm/a.bin") << "x";
  EXPECT_EQ(expand_data_patterns({dir / "data/lm/*.bin"}), (std::vector<std::string>{dir / "data/lm/a.bin"}));
}

}  // namespace
}  // namespace kata
