#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Workspace;

class KataGen : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workspace_ = new Workspace;
    ASSERT_EQ(workspace_->train({}).exit_code, 0);
  }
  static void TearDownTestSuite() {
    delete workspace_;
    workspace_ = nullptr;
  }
  test::ProgramResult generate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--checkpoint", "out"});
    return workspace_->run("katagen", arguments);
  }
  std::string text(std::vector<std::string> arguments) const {
    const auto result = generate(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  static Workspace* workspace_;
};
Workspace* KataGen::workspace_ = nullptr;

TEST_F(KataGen, WritesThePromptAndAsManyTokensAsAsked) {
  const std::string out = text({"--prompt", "line 3", "--tokens", "50", "--seed", "2"});
  EXPECT_EQ(out.size(), 6 + 50 + 1u);
  EXPECT_EQ(out.substr(0, 6), "line 3");
  EXPECT_EQ(text({"--prompt", "x", "--tokens", "0"}), "x\n");
}

TEST_F(KataGen, TheSeedDecides) {
  EXPECT_EQ(text({"--seed", "2"}), text({"--seed", "2"}));
  EXPECT_NE(text({"--seed", "2"}), text({"--seed", "3"}));
  EXPECT_EQ(text({"--temperature", "0", "--seed", "2"}), text({"--temperature", "0", "--seed", "3"}));
  EXPECT_EQ(text({"--top-k", "1", "--seed", "2"}), text({"--temperature", "0"}));
  EXPECT_EQ(text({"--top-p", "0", "--seed", "2"}), text({"--temperature", "0"}));
  EXPECT_EQ(text({"--threads", "2", "--seed", "2"}), text({"--seed", "2"}));
}

TEST_F(KataGen, APromptFileIsAPrompt) {
  test::spill(workspace_->dir / "prompt.txt", "line 9");
  EXPECT_EQ(text({"--prompt-file", "prompt.txt", "--temperature", "0"}),
            text({"--prompt", "line 9", "--temperature", "0"}));
}

TEST_F(KataGen, OneStepFolderIsACheckpointToo) {
  const auto result =
      workspace_->run("katagen", {"--checkpoint", workspace_->newest(), "--temperature", "0"});
  EXPECT_EQ(result.out, text({"--temperature", "0"}));
}

TEST_F(KataGen, Errors) {
  const Workspace& w = *workspace_;
  expect_error(w.run("katagen", {}), 2, {"--checkpoint"});
  expect_error(w.run("katagen", {"--checkpoint", "absent"}), 3, {"absent"});
  expect_error(w.run("katagen", {"--checkpoint", "text.txt"}), 3, {"text.txt"});
  expect_error(w.run("katagen", {"--checkpoint", "corpus"}), 3, {"corpus"});
  expect_error(generate({"--prompt-file", "absent.txt"}), 3, {"absent.txt"});
  expect_error(generate({"--temperature", "-1"}), 2, {"--temperature"});
  expect_error(generate({"--temperature", "nan"}), 2, {"--temperature"});
  expect_error(generate({"--top-p", "1.5"}), 2, {"--top-p"});
  expect_error(generate({"--tokens", "-1"}), 2, {"--tokens"});
  expect_error(generate({"--device", "gpu"}), 2, {"expected auto, cpu or cuda[:N]"});
  expect_error(generate({"--device", "cuda:99"}), 5, {"--device cuda:99"});
}

struct Mixers {
  std::string name, yaml;
};
class KataGenMixers : public ::testing::TestWithParam<Mixers> {};

// A short training of a mixer; then what it writes.
TEST_P(KataGenMixers, APromptAtOnceIsThePromptGrownTokenByToken) {
  const Workspace w;
  const auto trained = w.train({"--steps", "3", "--set", "model.mixer=" + GetParam().yaml});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto text = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--checkpoint", "out"});
    const auto result = w.run("katagen", arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string prompt = "line 3: the quick";
  const std::string drawn = text({"--prompt", prompt, "--tokens", "40", "--seed", "2"});
  EXPECT_EQ(drawn.size(), prompt.size() + 40 + 1);
  EXPECT_EQ(drawn, text({"--prompt", prompt, "--tokens", "40", "--seed", "2"}));
  EXPECT_NE(drawn, text({"--prompt", prompt, "--tokens", "40", "--seed", "3"}));

  const std::string whole = text({"--prompt", prompt, "--tokens", "40", "--temperature", "0"});
  ASSERT_EQ(whole.size(), prompt.size() + 40 + 1);
  for (const size_t given : {1, 2, 3, 17, 39}) {
    test::spill(w.dir / "prompt.txt", whole.substr(0, prompt.size() + given));
    EXPECT_EQ(
        text({"--prompt-file", "prompt.txt", "--tokens", std::to_string(40 - given), "--temperature", "0"}),
        whole)
        << given << " tokens of what was written given as prompt";
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, KataGenMixers,
                         ::testing::Values(Mixers{"softmax", "{preset: softmax}"},
                                           Mixers{"deltakata_m2", "{preset: deltakata_m2}"},
                                           Mixers{"gated_deltanet", "{preset: gated_deltanet}"},
                                           Mixers{"mamba2", "{preset: mamba2}"},
                                           Mixers{"hybrid",
                                                  "[{preset: softmax}, {preset: gatedkata_m2, conv: 3}]"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kata
