#include "data/tokenize.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "data/shard.h"
#include "support/errors.h"
#include "support/run_program.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

class Tokenize : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    std::ofstream(dir / name, std::ios::binary) << bytes;
    return dir / name;
  }
  TokenizeOptions options(std::vector<std::string> inputs) {
    TokenizeOptions o;
    o.inputs = std::move(inputs);
    o.output = dir / "out/deep";
    return o;
  }
  std::string text_of(const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(dir / ("out/deep/" + name));
    std::string text;
    detokenize(paths, *make_tokenizer("bytes"), [&](std::string_view part) { text += part; });
    return text;
  }
  std::vector<std::string> outputs() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir / "out/deep"))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  TempDir dir;
};

// n letters without a line end, then lines of different lengths.
std::string sample(size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += static_cast<char>('a' + i * 7 % 26);
  for (size_t i = 0; i < n; i += 1 + i % 300) text[i] = '\n';
  return text;
}

TEST_F(Tokenize, TheEndOfTheTextIsForValidation) {
  const std::string text = sample(1000);
  const auto result = tokenize(options({put("a.txt", text)}));
  EXPECT_EQ(result.train_bytes, 950);
  EXPECT_EQ(result.validation_bytes, 50);
  ASSERT_EQ(result.files.size(), 2u);
  EXPECT_EQ(result.files[0].path, dir / "out/deep/train-000000.bin");
  EXPECT_EQ(result.files[0].tokens, 950);
  EXPECT_EQ(result.files[1].path, dir / "out/deep/validation.bin");
  EXPECT_EQ(result.files[1].tokens, 50);
  EXPECT_EQ(outputs(), (std::vector<std::string>{"train-000000.bin", "validation.bin"}));
  EXPECT_EQ(text_of({"train-000000.bin"}), text.substr(0, 950));
  EXPECT_EQ(text_of({"validation.bin"}), text.substr(950));
}

TEST_F(Tokenize, FilesAreJoinedAndCutIntoShards) {
  const std::string a = sample(3'000'000), b = "one line\n", c = std::string(1'500'000, 'x');
  auto o = options({put("a", a), put("empty", ""), put("b", b), put("c", c)});
  o.shard_tokens = 1'000'000;
  o.validation_fraction = 0.1;
  const auto result = tokenize(o);
  const std::string all = a + b + c;
  const std::vector<std::string> train = {"train-000000.bin", "train-000001.bin", "train-000002.bin",
                                          "train-000003.bin", "train-000004.bin"};
  ASSERT_EQ(result.files.size(), 6u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(result.files[i].tokens, 1'000'000);
  EXPECT_EQ(text_of(train) + text_of({"validation.bin"}), all);
  EXPECT_EQ(result.validation_bytes, static_cast<int64_t>(all.size()) / 10);
}

TEST_F(Tokenize, ShardsOfOneTokenAndNoValidation) {
  auto o = options({put("a", "xyz")});
  o.shard_tokens = 1;
  o.validation_fraction = 0;
  EXPECT_EQ(tokenize(o).files.size(), 3u);
  EXPECT_EQ(outputs(),
            (std::vector<std::string>{"train-000000.bin", "train-000001.bin", "train-000002.bin"}));
  EXPECT_EQ(text_of(outputs()), "xyz");
}

TEST_F(Tokenize, ACharacterIsNotSplit) {
  std::string text = "0123456789";
  for (int i = 0; i < 5; ++i) text += "\xe2\x82\xac";  // 25 bytes; the last 5 begin inside a character
  auto o = options({put("a", text)});
  o.validation_fraction = 0.2;
  tokenize(o);
  EXPECT_EQ(text_of({"validation.bin"}), "\xe2\x82\xac");
}

TEST_F(Tokenize, AllBytesSurvive) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>(i * 37);
  tokenize(options({put("a", text)}));
  EXPECT_EQ(text_of({"train-000000.bin", "validation.bin"}), text);
}

TEST_F(Tokenize, AnOldSetIsReplacedAsAWholeAndOnlyOnDemand) {
  auto o = options({put("a", sample(1000))});
  o.shard_tokens = 300;
  tokenize(o);
  put("out/deep/notes.txt", "mine");
  EXPECT_EQ(outputs().size(), 6u);
  auto second = options({put("b", sample(500))});
  EXPECT_TRUE(fails_with(ExitCode::usage, {dir / "out/deep/train-000000.bin", "--overwrite"},
                         [&] { tokenize(second); }));
  EXPECT_EQ(text_of({"train-000000.bin"}), sample(1000).substr(0, 300));
  second.overwrite = true;
  tokenize(second);
  EXPECT_EQ(outputs(), (std::vector<std::string>{"notes.txt", "train-000000.bin", "validation.bin"}));
  EXPECT_EQ(text_of({"train-000000.bin", "validation.bin"}), sample(500));
}

TEST_F(Tokenize, TooLittleText) {
  EXPECT_TRUE(fails_with(ExitCode::data, {"no text, 0 bytes"}, [&] { tokenize(options({put("a", "")})); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"validate on, found 1", "set it to 0"},
                         [&] { tokenize(options({put("a", sample(30))})); }));
  auto greedy = options({put("a", "abc")});
  greedy.validation_fraction = 0.9;
  EXPECT_TRUE(fails_with(ExitCode::data, {"train on, found 1", "lower"}, [&] { tokenize(greedy); }));
  EXPECT_TRUE(outputs().empty());  // nothing stays of a refused run
  EXPECT_NO_THROW(tokenize(options({put("a", sample(40))})));
}

TEST_F(Tokenize, WhatIsNoText) {
  const auto refused = [&](const std::string& bytes, const std::string& word) {
    return fails_with(ExitCode::usage, {dir / "a", word}, [&] { tokenize(options({put("a", bytes)})); });
  };
  EXPECT_TRUE(refused("\x1f\x8b\x08rest", "gzip -dc"));
  EXPECT_TRUE(refused("BZh91", "bzip2 -dc"));
  EXPECT_TRUE(
      refused("\xfd"
              "7zXZ\x01",
              "xz -dc"));
  EXPECT_TRUE(refused("\x28\xb5\x2f\xfdrest", "zstd -dc"));
  EXPECT_TRUE(refused("PK\x03\x04", "unzip"));
  write_shard(dir / "b", std::vector<int32_t>(5, 7), 256);
  EXPECT_TRUE(fails_with(ExitCode::usage, {dir / "b", "token shard already"},
                         [&] { tokenize(options({dir / "b"})); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"twice"}, [&] { tokenize(options({"-", "-"})); }));
  auto o = options({put("a", sample(100))});
  o.tokenizer = "words";
  EXPECT_TRUE(fails_with(ExitCode::usage, {"\"words\"", "bytes"}, [&] { tokenize(o); }));
}

TEST_F(Tokenize, AFullDiskLeavesTheOldSet) {
  auto o = options({put("a", sample(1000))});
  tokenize(o);
  const auto result = test::run_in_child([&] {
    auto next = options({put("b", sample(5000))});
    next.overwrite = true;
    next.shard_tokens = 2000;  // 5024 bytes with the header
    next.validation_fraction = 0.7;
    test::limit_file_size(5100);  // the train shard fits, the validation shard does not
    tokenize(next);
    return 0;
  });
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::data)) << result.err;
  EXPECT_EQ(outputs(), (std::vector<std::string>{"train-000000.bin", "validation.bin"}));
  EXPECT_EQ(text_of({"train-000000.bin", "validation.bin"}), sample(1000));
}

TEST_F(Tokenize, FormFeedsStandBetweenDocuments) {
  auto o = options({put("a.txt", "first\n\fsecond\n\f\fthird\n"), put("b.txt", "fourth\n")});
  o.documents = "form-feed";
  o.validation_fraction = 0.4;  // inside "third": the fourth document is left
  tokenize(o);
  EXPECT_EQ(text_of({"train-000000.bin"}), "first\nsecond\nthird\n");
  EXPECT_EQ(text_of({"validation.bin"}), "fourth\n");
  o.validation_fraction = 0.1;
  o.overwrite = true;  // inside the last document: none is left
  EXPECT_TRUE(fails_with(ExitCode::data, {"to validate on"}, [&] { tokenize(o); }));
}

TEST_F(Tokenize, DetokenizeRefusesForeignIds) {
  write_shard(dir / "wide.bin", std::vector<int32_t>{65, 256}, 50000);
  EXPECT_TRUE(fails_with(ExitCode::data, {dir / "wide.bin", "token 1", "id 256"}, [&] {
    detokenize({dir / "wide.bin"}, *make_tokenizer("bytes"), [](std::string_view) {});
  }));
}

}  // namespace
}  // namespace kata
