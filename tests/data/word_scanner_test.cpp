#include "data/word_scanner.h"

#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "data/unicode.h"
#include "data/utf8.h"

namespace kata {
namespace {

std::vector<size_t> ends_of(const WordScanner& scanner, const std::string& text) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size(); at = ends.back()) ends.push_back(scanner.word_end(text, at));
  return ends;
}

// Of a text, its words' ends as the general engine finds them.
std::vector<size_t> ends_of(const Regex& regex, const std::string& text) {
  std::vector<size_t> ends;
  regex.find(text, {{0, text.size()}}, [&](size_t, Span match) {
    EXPECT_EQ(match.begin, ends.empty() ? 0 : ends.back());
    ends.push_back(match.end);
  });
  return ends;
}

// Characters of every class, the ones that the expressions name among them.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> often = {" ",  " ",   "\n",  "\r",        "\t",       "'",       "'s",
                                                 "'S", "'re", "'LL", "'\xc5\xbf", "'d",       "'m",      "a",
                                                 "Z",  "7",   "!",   ".",         "\xc2\xa0", "\xc2\x85"};
  std::string text;
  for (size_t i = 1 + random() % 12; i > 0; --i) {
    auto c = static_cast<char32_t>(random() % 4 == 0 ? random() % 0x30000 : random() % 0x3100);
    if (c >= 0xD800 && c < 0xE000) c = 'x';
    if (random() % 3 == 0)
      append_code_point(text, c);
    else
      text += often[random() % often.size()];
  }
  return text;
}

TEST(WordScanner, AgreesWithTheExpressions) {
  if (!has_unicode()) GTEST_SKIP() << "this build has no ICU";
  for (const char* expression : {WordScanner::gpt2, WordScanner::llama3, WordScanner::qwen}) {
    const auto scanner = WordScanner::of(expression);
    ASSERT_TRUE(scanner);
    const Regex regex(expression, "test");
    std::mt19937 random(5);
    for (int i = 0; i < 20'000; ++i) {
      const std::string text = random_text(random);
      ASSERT_EQ(ends_of(*scanner, text), ends_of(regex, text)) << expression << "\n"
                                                               << ::testing::PrintToString(text);
    }
  }
  EXPECT_FALSE(WordScanner::of("a+"));
}

}  // namespace
}  // namespace kata
