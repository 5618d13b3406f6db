// A sentencepiece model through the programs: trained, used for shards, kept in checkpoints, read back.
#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Workspace;

class SentencePieceApps : public ::testing::Test {
 protected:
  SentencePieceApps() {
    std::string text;
    for (int i = 0; i < 900; ++i)
      text += "line " + std::to_string(i * i % 97) + ": the quick brown fox jumps over a lazy dog, again\n";
    test::spill(w.dir / "words.txt", text);
    const auto made = w.run(
        "katadata", {"train-tokenizer", "--input", "words.txt", "--vocab", "300", "--output", "words.model"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.err.find("[info] words.model: 300 pieces (unigram) from "), 0u) << made.err;
    EXPECT_EQ(std::count(made.err.begin(), made.err.end(), '\n'), 1) << made.err;
    const auto cut = w.run(
        "katadata", {"tokenize", "--input", "words.txt", "--tokenizer", "words.model", "--output", "pieces"});
    EXPECT_EQ(cut.exit_code, 0) << cut.err;
  }
  std::vector<std::string> pieces() const {
    return {"--set", "data.tokenizer=words.model",
            "--set", "data.train=[pieces/train-*.bin]",
            "--set", "data.validation=[pieces/validation.bin]"};
  }
  Workspace w;
};

TEST_F(SentencePieceApps, ACheckpointIsCompleteByItself) {
  auto arguments = pieces();
  arguments.insert(arguments.end(), {"--steps", "3"});
  const auto trained = w.train(arguments);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.err.find("bits per byte"), std::string::npos) << trained.err;
  EXPECT_NE(w.read("out/config.yaml").find("vocab: 300"), std::string::npos);
  EXPECT_EQ(w.read(w.newest() + "/tokenizer.model"), w.read("words.model"));
  EXPECT_FALSE(w.exists(w.newest() + "/tokenizer.json"));
  std::filesystem::remove(w.dir / "words.model");
  const auto said = w.run("katagen", {"--checkpoint", "out", "--prompt", "the quick", "--tokens", "20"});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(said.out.find("the quick"), 0u);
  EXPECT_EQ(w.run("katagen", {"--checkpoint", "out", "--tokens", "5"}).exit_code, 0);
  expect_error(w.train(arguments), 3, {"words.model", "no such tokenizer file"});
}

TEST_F(SentencePieceApps, ShardsAreShownAndComeBack) {
  const auto shown = w.run("katadata", {"inspect", "--tokenizer", "words.model", "pieces/train-000000.bin"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_NE(shown.out.find("uint16 tokens"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("text   \"line 0: the quick"), std::string::npos) << shown.out;
  const auto back = w.run("katadata", {"detokenize", "--tokenizer", "words.model", "pieces/train-000000.bin",
                                       "pieces/validation.bin"});
  EXPECT_EQ(back.out, w.read("words.txt"));
}

TEST_F(SentencePieceApps, Errors) {
  const auto train = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train-tokenizer"});
    return w.run("katadata", arguments);
  };
  expect_error(train({"--input", "words.txt"}), 2, {"--output is required"});
  expect_error(train({"--input", "words.txt", "--output", "x"}), 2, {"--output", ".model"});
  expect_error(train({"--input", "words.txt", "--output", "x.model", "--vocab", "7"}), 2, {"--vocab", "260"});
  expect_error(train({"--input", "words.txt", "--output", "x.model", "--kind", "word"}), 2,
               {"--kind", "bpe"});
  expect_error(train({"--input", "words.txt", "--output", "x.model"}), 3, {"words.txt", "32000 pieces"});
  expect_error(train({"--input", "absent", "--output", "x.model"}), 3, {"absent"});
  EXPECT_FALSE(w.exists("x.model"));
  std::filesystem::resize_file(w.dir / "words.model", 1000);
  for (const char* command : {"inspect", "detokenize"})
    expect_error(w.run("katadata", {command, "--tokenizer", "words.model", "pieces/validation.bin"}), 3,
                 {"words.model", "cut short"});
  expect_error(w.train(pieces()), 3, {"words.model", "cut short"});
}

}  // namespace
}  // namespace kata
