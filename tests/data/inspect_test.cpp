#include "data/inspect.h"

#include <fstream>

#include "base/safetensors.h"
#include "data/npz.h"
#include "data/shard.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

class Inspect : public ::testing::Test {
 protected:
  std::string shown(const std::string& name) { return inspect(dir / name, *make_tokenizer("bytes")); }
  bool shows(const std::string& name, const std::vector<std::string>& parts) {
    const std::string text = shown(name);
    for (const std::string& part : parts)
      if (text.find(part) == std::string::npos) {
        ADD_FAILURE() << "\"" << part << "\" is missing in: " << text;
        return false;
      }
    return true;
  }
  TempDir dir;
};

TEST_F(Inspect, ShardOfText) {
  write_shard(dir / "a.bin", std::vector<int32_t>{'H', 'i', '\n', '"'}, 256);
  EXPECT_EQ(shown("a.bin"), dir / "a.bin" +
                                ": token shard, 4 uint16 tokens, 1032 bytes\n"
                                "  ids    10 to 105\n  first  72 105 10 34\n  text   \"Hi\\n\\\"\"\n");
}

TEST_F(Inspect, ShardOfAnotherTokenizer) {
  write_shard(dir / "wide", std::vector<int32_t>(40, 100000), 200000);  // known by its first bytes
  EXPECT_TRUE(
      shows("wide", {"40 uint32 tokens", "ids    100000 to 100000", "100000 100000 ...", "not shown"}));
  std::string bytes = read_file(dir / "wide");
  bytes[1027] = '\x80';  // the first id above 2^31
  std::ofstream(dir / "wide", std::ios::binary) << bytes;
  EXPECT_TRUE(shows("wide", {"100000 to 2147583648", "too large"}));
}

TEST_F(Inspect, Archive) {
  const std::vector<int64_t> values = {5, -100, 7};
  const std::u32string word = U"train";
  write_npz(dir / "set.npz",
            {{"labels", "<i8", {3, 1}, [&](const NpzArray::Sink& s) { s(values.data(), 24); }},
             {"empty", "<i8", {0}, [](const NpzArray::Sink&) {}},
             {"split", "<U5", {}, [&](const NpzArray::Sink& s) { s(word.data(), 20); }}});
  EXPECT_TRUE(shows("set.npz", {"3 arrays", "labels  <i8 [3, 1], -100 to 7", "first  5 -100 7\n",
                                "empty  <i8 [0]\n", "split  <U5 [], \"train\""}));
}

TEST_F(Inspect, Tensors) {
  std::vector<float> x(6);
  write_safetensors(dir / "m.safetensors", {{"w", Tensor(x.data(), DType::f32, {2, 3})}},
                    {{"made by", "us"}});
  EXPECT_TRUE(shows("m.safetensors", {"1 tensors", "w  F32 [2, 3], 24 bytes", "\"made by\" = \"us\""}));
}

TEST_F(Inspect, OtherFiles) {
  const auto refused = [&](const std::string& name, std::vector<std::string> parts) {
    parts.push_back(dir / name);
    return fails_with(ExitCode::data, parts, [&] { shown(name); });
  };
  std::ofstream(dir / "text") << "just words";
  std::ofstream(dir / "empty");
  std::ofstream(dir / "text.bin") << "just words";
  std::ofstream(dir / "text.npz") << "just words";
  std::ofstream(dir / "text.safetensors") << "just words";
  EXPECT_TRUE(refused("text", {"expected a token shard", "tokenize"}));
  EXPECT_TRUE(refused("empty", {"expected a token shard"}));
  EXPECT_TRUE(refused("text.bin", {"10 bytes"}));
  EXPECT_TRUE(refused("text.npz", {}));
  EXPECT_TRUE(refused("text.safetensors", {}));
  EXPECT_TRUE(refused("none", {"No such file"}));
  EXPECT_TRUE(fails_with(ExitCode::data, {dir.path(), "directory"},
                         [&] { inspect(dir.path(), *make_tokenizer("bytes")); }));
}

TEST(QuotedLine, IsOnePrintableLine) {
  EXPECT_EQ(quoted_line("a\n\t\"\\"), R"("a\n\t\"\\")");
  EXPECT_EQ(quoted_line(std::string("\0\x1b\x7f", 3)), R"("\x00\x1b\x7f")");
  EXPECT_EQ(quoted_line("\xc3\xa9 \xe2\x82\xac"), "\"\xc3\xa9 \xe2\x82\xac\"");
  EXPECT_EQ(quoted_line("\xe2\x82"), R"("\xe2\x82")");  // cut
  EXPECT_EQ(quoted_line("\xff\x80x\xc0\xaf"), R"("\xff\x80x\xc0\xaf")");
  EXPECT_EQ(quoted_line(""), "\"\"");
}

}  // namespace
}  // namespace kata
