#include "data/tokenizer.h"

#include "support/errors.h"

namespace kata {
namespace {

using test::fails_with;

TEST(ByteTokenizer, IdsAreTheBytes) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab(), 256);
  EXPECT_EQ(tokenizer->name(), "bytes");
  EXPECT_EQ(tokenizer->encode("A\xc3\xa9\n"), (std::vector<int32_t>{65, 0xc3, 0xa9, 10}));
  EXPECT_TRUE(tokenizer->encode("").empty());
  EXPECT_NE(tokenizer->serialise().find("bytes"), std::string::npos);
}

TEST(ByteTokenizer, EveryByteComesBack) {
  const auto tokenizer = make_tokenizer("bytes");
  std::string all;
  for (int round = 0; round < 2; ++round)
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(all)), all);
}

TEST(ByteTokenizer, RefusesWhatIsNoByte) {
  const auto tokenizer = make_tokenizer("bytes");
  EXPECT_TRUE(fails_with(ExitCode::data, {"256", "position 1", "0 to 255"}, [&] {
    tokenizer->decode({1, 256});
  }));
  EXPECT_TRUE(fails_with(ExitCode::data, {"-1", "position 0"}, [&] { tokenizer->decode({-1}); }));
}

TEST(MakeTokenizer, ListsTheNamesThatExist) {
  EXPECT_TRUE(fails_with(ExitCode::usage, {"\"byte\"", "bytes"}, [] { make_tokenizer("byte"); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"\"\"", "bytes"}, [] { make_tokenizer(""); }));
}

}  // namespace
}  // namespace kata
