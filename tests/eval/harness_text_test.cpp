// Python's text and random numbers, and SHA-256: what published numbers are defined by.
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "data/utf8.h"
#include "eval/harness/needle_noise.h"
#include "eval/harness/python_random.h"
#include "eval/harness/python_text.h"
#include "eval/harness/sha256.h"

namespace kata::harness {
namespace {

#define NEEDS_CASE_TABLES() \
  if (!has_case_tables()) GTEST_SKIP() << "this build has no ICU"

TEST(PythonText, WhiteSpace) {
  EXPECT_EQ(strip("\t\n\v\f\r\x1c\x1d\x1e\x1f x\xc2\xa0y \xe2\x80\xa8\xe3\x80\x80"), "x\xc2\xa0y");
  EXPECT_EQ(strip_left(" \xc2\x85 a "), "a ");
  EXPECT_EQ(strip_right(" a\xe1\x9a\x80"), " a");
  // A zero width space, a Mongolian vowel separator and a byte order mark are none.
  for (const char* text : {"\xe2\x80\x8b", "\xe1\xa0\x8e", "\xef\xbb\xbf"}) EXPECT_EQ(strip(text), text);
  EXPECT_EQ(strip(" \n"), "");
  EXPECT_EQ(strip(""), "");
}

TEST(PythonText, FieldsBetweenWhiteSpace) {
  EXPECT_EQ(space_fields(" a b \n"), 4);
  EXPECT_EQ(space_fields("a"), 1);
  EXPECT_EQ(space_fields(""), 1);
  EXPECT_EQ(space_fields(" "), 2);
}

TEST(PythonText, Lengths) {
  EXPECT_EQ(code_points("na\xc3\xafvet\xc3\xa9 \xf0\x9f\x99\x82"), 9);
  EXPECT_TRUE(is_utf8("\xf0\x9f\x99\x82"));
  for (const char* bad : {"\xff", "\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "a\x80"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

TEST(PythonText, NumbersAsPythonPrintsThem) {
  EXPECT_EQ(python_float(-0.8444218515250481), "-0.8444218515250481");
  EXPECT_EQ(python_float(0.0), "0.0");
  EXPECT_EQ(python_float(-12.0), "-12.0");
  EXPECT_EQ(python_float(1e16), "1e+16");
  EXPECT_EQ(python_float(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(python_float(0.0001), "0.0001");
  EXPECT_EQ(python_float(0.00001), "1e-05");
  EXPECT_EQ(python_float(1.5e-7), "1.5e-07");
  EXPECT_EQ(python_float(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(python_float(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(PythonText, Capitalize) {
  NEEDS_CASE_TABLES();
  EXPECT_EQ(capitalize("hE said I"), "He said i");
  EXPECT_EQ(capitalize("\xc3\x9fx"), "Ssx");
  EXPECT_EQ(capitalize(""), "");
  EXPECT_EQ(capitalize("\xcd\x85 A"), "\xce\x99 a");  // a mark that has an upper case
  EXPECT_EQ(capitalize("\xc4\xb0"
                       "AB"),
            "\xc4\xb0"
            "ab");                                                // a letter whose lower case is longer
  EXPECT_EQ(capitalize("\xce\x91\xce\xa3"), "\xce\x91\xcf\x82");  // a sigma at the end of a word
  EXPECT_EQ(capitalize("\xc7\x86"
                       "a"),
            "\xc7\x85"
            "a");  // title case is not upper case
  EXPECT_EQ(lower_first("\xc3\x89LAN"), "\xc3\xa9LAN");
  EXPECT_EQ(upper_first("key name"), "Key name");
}

TEST(PythonText, ContainsWhateverTheCase) {
  NEEDS_CASE_TABLES();
  EXPECT_TRUE(contains_ignoring_case("it is c++ (V1.0).", "C++ (v1.0)"));
  EXPECT_FALSE(contains_ignoring_case("C++ (v1x0)", "C++ (v1.0)"));
  EXPECT_TRUE(contains_ignoring_case("anything", ""));
  EXPECT_TRUE(contains_ignoring_case("", ""));
  EXPECT_FALSE(contains_ignoring_case("", "a"));
  EXPECT_TRUE(contains_ignoring_case("\xc3\x9cMIT works", "\xc3\xbcmit"));
  EXPECT_TRUE(contains_ignoring_case("\xe2\x84\xaa", "k"));  // the sign of kelvin
  EXPECT_FALSE(contains_ignoring_case("STRASSE",
                                      "stra\xc3\x9f"
                                      "e"));  // character by character
  EXPECT_EQ(find_ignoring_case("ab\xc3\x89"
                               "cd",
                               "\xc3\xa9"
                               "C"),
            (std::pair<size_t, size_t>{2, 5}));
}

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (const size_t length : {55u, 56u, 63u, 64u, 65u})
    EXPECT_EQ(sha256_hex(std::string(length, 'x')).size(), 64u);
}

std::vector<double> draws(uint64_t seed, int count) {
  PythonRandom random(seed);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(random.random());
  return values;
}

TEST(PythonRandom, Uniform) {
  EXPECT_EQ(draws(0, 3), (std::vector<double>{0.8444218515250481, 0.7579544029403025, 0.420571580830845}));
  EXPECT_EQ(draws(42, 3),
            (std::vector<double>{0.6394267984578837, 0.025010755222666936, 0.27502931836911926}));
  EXPECT_EQ(draws(1234, 2), (std::vector<double>{0.9664535356921388, 0.4407325991753527}));
}

TEST(PythonRandom, Choices) {
  const auto drawn = [](uint64_t seed) {
    PythonRandom random(seed);
    std::vector<int64_t> values;
    for (int i = 0; i < 12; ++i) values.push_back(random.index(10));
    return values;
  };
  EXPECT_EQ(drawn(0), (std::vector<int64_t>{8, 7, 4, 2, 5, 4, 7, 3, 4, 5, 9, 5}));
  EXPECT_EQ(drawn(99), (std::vector<int64_t>{4, 2, 1, 2, 7, 2, 3, 6, 5, 9, 4, 4}));
}

TEST(PythonRandom, Integers) {
  PythonRandom a(42), b(0), c(42);
  for (const int64_t expected : {2867825, 1419610, 5614226, 5108603})
    EXPECT_EQ(a.integer(1'000'000, 9'999'999), expected);
  for (const int64_t expected : {7463343, 8056020, 1679215})
    EXPECT_EQ(b.integer(1'000'000, 9'999'999), expected);
  for (const uint64_t expected : {654u, 114u, 25u, 759u, 281u}) EXPECT_EQ(c.below(1000), expected);
}

TEST(PythonRandom, SamplesAndShuffle) {
  PythonRandom random(42);
  for (const int64_t expected : {20, 3, 0, 23, 8, 7}) EXPECT_EQ(random.sample(25, 1)[0], expected);
  EXPECT_EQ(random.sample(25, 4), (std::vector<int64_t>{7, 4, 23, 3}));
  EXPECT_EQ(random.sample(10, 4), (std::vector<int64_t>{8, 1, 6, 0}));
  PythonRandom other(42);
  std::vector<int64_t> order(8);
  std::iota(order.begin(), order.end(), 0);
  other.shuffle(order);
  EXPECT_EQ(order, (std::vector<int64_t>{3, 4, 6, 7, 2, 5, 0, 1}));
}

TEST(NeedleNoise, PromptsOfRuler) {
  const std::vector<std::string> words = {"amber-anvil", "brisk-boat", "calm-cedar", "dizzy-drum",
                                          "eager-elm"};
  struct Expected {
    const char *key, *value;
    int64_t line;
    size_t characters;
    const char* hash;
  };
  PythonRandom random(42);
  for (const Expected& expected :
       {Expected{"amber-anvil", "1419610", 2, 723, "9b718151a363eb4878a82d20a9e38f34"},
        Expected{"brisk-boat", "3341057", 0, 721, "2e1f53ac6fce70719c3b5d98b26f3a3f"}}) {
    const Needle needle = draw_needle(random, words, 5);
    EXPECT_EQ(needle.key, expected.key);
    EXPECT_EQ(needle.value, expected.value);
    EXPECT_EQ(needle.line, expected.line);
    EXPECT_EQ(needle.prompt.size(), expected.characters);
    EXPECT_EQ(sha256_hex(needle.prompt).substr(0, 32), expected.hash);
  }
}

}  // namespace
}  // namespace kata::harness
