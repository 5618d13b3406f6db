// A tokenizer.json through the programs: used for shards, kept in checkpoints, read back.
#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Workspace;

// Blanks are the character "_", so that the file is short; the document token is 4.
constexpr const char* tokenizer = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 4, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"},
  "post_processor": null,
  "decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "never"},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": {"\n": 0, "_": 1, "a": 2, "b": 3, "ab": 6},
            "merges": ["a b"]}})";

class HfTokenizerApps : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 900; ++i) text += i % 3 == 0 ? "ab a bab\n" : "b ab ba aa\n";
    test::spill(w.dir / "ab.txt", text);
    test::spill(w.dir / "ab.json", tokenizer);
    const auto cut =
        w.run("katadata", {"tokenize", "--input", "ab.txt", "--tokenizer", "ab.json", "--output", "pieces"});
    if (cut.exit_code == 5 && cut.err.find("libicu-dev") != std::string::npos) GTEST_SKIP() << cut.err;
    ASSERT_EQ(cut.exit_code, 0) << cut.err;
  }
  std::vector<std::string> pieces() const {
    return {"--set", "data.tokenizer=ab.json",
            "--set", "data.train=[pieces/train-*.bin]",
            "--set", "data.validation=[pieces/validation.bin]"};
  }
  Workspace w;
};

TEST_F(HfTokenizerApps, ACheckpointIsCompleteByItself) {
  auto arguments = pieces();
  arguments.insert(arguments.end(), {"--steps", "3"});
  const auto trained = w.train(arguments);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(w.read("out/config.yaml").find("vocab: 7"), std::string::npos);
  EXPECT_EQ(w.read(w.newest() + "/tokenizer.json"), tokenizer);
  std::filesystem::remove(w.dir / "ab.json");
  const auto said = w.run("katagen", {"--checkpoint", "out", "--prompt", "ab a", "--tokens", "20"});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(said.out.find("ab a"), 0u);
  expect_error(w.train(arguments), 3, {"ab.json", "no such tokenizer file"});
}

TEST_F(HfTokenizerApps, ShardsAreShownAndComeBack) {
  const auto shown = w.run("katadata", {"inspect", "--tokenizer", "ab.json", "pieces/train-000000.bin"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_NE(shown.out.find("text   \"ab a bab\\n"), std::string::npos) << shown.out;
  const auto back = w.run("katadata", {"detokenize", "--tokenizer", "ab.json", "pieces/train-000000.bin",
                                       "pieces/validation.bin"});
  EXPECT_EQ(back.out, w.read("ab.txt"));
}

TEST_F(HfTokenizerApps, Errors) {
  std::string other = tokenizer;
  other.replace(other.find("\"BPE\""), 5, "\"Unigram\"");
  test::spill(w.dir / "ab.json", other);
  for (const char* command : {"inspect", "detokenize"})
    expect_error(w.run("katadata", {command, "--tokenizer", "ab.json", "pieces/validation.bin"}), 3,
                 {"ab.json: model.type", "only BPE"});
  expect_error(w.train(pieces()), 3, {"ab.json: model.type", "only BPE"});
  std::filesystem::resize_file(w.dir / "ab.json", 300);
  expect_error(w.train(pieces()), 3, {"ab.json", "no JSON"});
}

}  // namespace
}  // namespace kata
