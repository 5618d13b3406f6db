// The configs of the 340M models, planned without their data.
#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Workspace;

struct Model {
  std::string name;
  int64_t parameters;
};
class Lm340m : public ::testing::TestWithParam<Model> {};

TEST_P(Lm340m, IsPlannedWithoutData) {
  const test::TempDir empty;
  test::ProgramOptions options;
  options.folder = empty.path();
  const auto planned =
      test::run_program({KATA_BIN_DIR "/katatrain", "--config",
                         std::string(KATA_SOURCE_DIR) + "/configs/lm340m_" + GetParam().name + ".yaml",
                         "--dry-run", "--device", "cpu"},
                        options);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_NE(planned.out.find(fmt::format("# parameters: {}\n", GetParam().parameters)), std::string::npos)
      << planned.out;
  const int64_t n = GetParam().parameters;  // the table has it with commas
  const std::string row = fmt::format("| `lm340m_{}.yaml` | {},{:03},{:03} |", GetParam().name, n / 1'000'000,
                                      n / 1000 % 1000, n % 1000);
  EXPECT_NE(test::slurp(std::string(KATA_SOURCE_DIR) + "/configs/README.md").find(row), std::string::npos)
      << row;
  for (const char* text : {"steps: 28610", "batch_tokens: 524288", "sequence: 2048", "precision: bf16",
                           "warmup: 954", "vocab: 32000", "# memory:"})
    EXPECT_NE(planned.out.find(text), std::string::npos) << text << " is not in " << planned.out;
}

INSTANTIATE_TEST_SUITE_P(Models, Lm340m,
                         ::testing::Values(Model{"softmax", 341'099'520}, Model{"psd", 341'104'128},
                                           Model{"kata_m2", 341'104'128}, Model{"kata_m4", 341'104'128},
                                           Model{"kata_s2", 341'104'128}, Model{"deltakata_m1", 341'494'272},
                                           Model{"gatedkata_m1", 341'498'112}, Model{"deltanet", 341'789'184},
                                           Model{"gated_deltanet", 367'348'992},
                                           Model{"mamba2", 398'836'992}),
                         [](const auto& instance) { return instance.param.name; });

TEST(Lm340mData, MissingOnesNameTheCommandThatMakesThem) {
  const Workspace w;
  const std::string config = std::string(KATA_SOURCE_DIR) + "/configs/lm340m_psd.yaml";
  expect_error(w.run("katatrain", {"--config", config, "--set", "train.precision=fp32"}), 3,
               {"data/lm/tokenizer.model", "./scripts/make_lm_corpus.sh"});
  expect_error(w.train({"--set", "data.train=[data/lm/train-*.bin]"}), 3,
               {"data/lm/train-*.bin", "./scripts/make_lm_corpus.sh"});
}

}  // namespace
}  // namespace kata
