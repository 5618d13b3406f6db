// Metrics and their errors, against vectors of EVAL A.6 and against lm-eval's own outcomes.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "eval/harness/metrics.h"
#include "eval/harness/python_text.h"

namespace kata::harness {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Item choices(std::vector<std::string> texts, int64_t gold) {
  Item item;
  item.choices = std::move(texts);
  item.gold = gold;
  return item;
}
Answer likelihoods(const std::vector<double>& sums) {
  Answer answer;
  for (const double sum : sums) answer.likelihoods.push_back({sum, false});
  return answer;
}
double measured(const char* metric, const Item& item, const Answer& answer) {
  return measure(metric, item, answer).value;
}
Answer written(const std::string& text) {
  Answer answer;
  answer.texts = {text};
  return answer;
}
Item wanted(std::vector<std::string> answers) {
  Item item;
  item.answers = std::move(answers);
  return item;
}
std::vector<Measured> all(const std::vector<double>& values) {
  std::vector<Measured> list;
  for (const double value : values) list.push_back({value});
  return list;
}

TEST(Metrics, TheFirstOfEqualsAndTheFirstThatIsNoNumber) {
  EXPECT_EQ(first_largest({-2, -1, -1}), 1);
  EXPECT_EQ(first_largest({-1, nan, 5, nan}), 1);
  EXPECT_EQ(first_largest({nan}), 0);
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(first_largest({-infinite, -infinite}), 0);
}

TEST(Metrics, AccuracyByCharactersAndByBytes) {
  // Three characters of two bytes each against four of one.
  const Item item = choices({"\xc3\xa9\xc3\xa9\xc3\xa9", "eeee"}, 0);
  const Answer answer = likelihoods({-3.0, -3.6});
  EXPECT_EQ(measured("acc", item, answer), 1);
  EXPECT_EQ(measured("acc_norm", item, answer), 0);
  EXPECT_EQ(measured("acc_bytes", item, answer), 1);
}

TEST(Metrics, GreedyFlagWithoutChoices) {
  Answer answer = likelihoods({-1});
  EXPECT_EQ(measured("acc", Item{}, answer), 0);
  answer.likelihoods[0].greedy = true;
  EXPECT_EQ(measured("acc", Item{}, answer), 1);
  EXPECT_EQ(measured("perplexity", Item{}, answer), -1);
}

TEST(Metrics, WhatIsWritten) {
  if (!has_case_tables()) GTEST_SKIP() << "this build has no ICU";
  EXPECT_EQ(measured("contains", wanted({"C++ (v1.0)"}), written(" the c++ (V1.0) one")), 1);
  EXPECT_EQ(measured("contains", wanted({"C++ (v1.0)"}), written("C+ (v1.0)")), 0);
  EXPECT_EQ(measured("contains", wanted({""}), written("x")), 1);
  EXPECT_EQ(measured("contains", wanted({"no", "yes"}), written("Yes!")), 1);
  EXPECT_EQ(measured("exact_match", wanted({" a b"}), written("a b\n")), 1);
  EXPECT_EQ(measured("exact_match", wanted({"a b"}), written("A b")), 0);
  EXPECT_EQ(measured("string_match_all", wanted({"12", "Ab", "z"}),
                     written("\x01"
                             "aB\x02 12")),
            2.0 / 3);
}

TEST(Metrics, ErrorOfAMean) {
  std::vector<double> values(100, 0.0);
  for (size_t i = 0; i < 25; ++i) values[i] = 1;
  EXPECT_DOUBLE_EQ(*mean_error(values), 0.04351941398892446);
  EXPECT_FALSE(mean_error({1.0}).has_value());
  EXPECT_FALSE(aggregate("acc", all({1.0}), 1000).error.has_value());
  EXPECT_FALSE(aggregate("acc", all(values), 0).error.has_value());
  EXPECT_FALSE(aggregate("contains", all(values), 1000).error.has_value());
  EXPECT_DOUBLE_EQ(aggregate("contains", all(values), 1000).value, 0.25);
}

TEST(Metrics, Bootstrap) {
  const std::vector<double> five = {-1, -2, -3, -4, -5};
  EXPECT_DOUBLE_EQ(aggregate("perplexity", all(five), 0).value, 20.085536923187668);
  EXPECT_NEAR(perplexity_error(five, 10), 18.527682569951423, 1e-11);
  EXPECT_NEAR(perplexity_error(five, 1000), 18.12217559155873, 1e-11);
  EXPECT_NEAR(perplexity_error(five, 100000), 16.680682154605307, 1e-11);
}

TEST(Metrics, BootstrapOfAWholeTestSet) {
  constexpr int documents = 5153;
  PythonRandom one(42), two(42);
  std::vector<double> each, every_second;
  for (int i = 0; i < documents; ++i) {
    each.push_back(-one.random());
    every_second.push_back(-two.random());
    two.random();
  }
  EXPECT_DOUBLE_EQ(aggregate("perplexity", all(each), 0).value, 1.648660407030708);
  EXPECT_NEAR(perplexity_error(each, 10), 0.0050438508768442, 1e-14);
  EXPECT_NEAR(perplexity_error(each, 100), 0.005386297069535188, 1e-14);
  EXPECT_DOUBLE_EQ(aggregate("perplexity", all(every_second), 0).value, 1.6479047769869253);
  EXPECT_NEAR(perplexity_error(every_second, 10), 0.006497321146240192, 1e-14);
}

TEST(Metrics, PerplexitiesOfRollingTexts) {
  const std::vector<Measured> pages = {{-30, 10}, {-50, 10}};
  EXPECT_DOUBLE_EQ(aggregate("word_perplexity", pages, 1000).value, std::exp(4));
  EXPECT_DOUBLE_EQ(aggregate("bits_per_byte", pages, 1000).value, 4 / std::log(2));
  EXPECT_FALSE(aggregate("word_perplexity", pages, 1000).error.has_value());
  EXPECT_FALSE(higher_is_better("byte_perplexity"));
  EXPECT_TRUE(higher_is_better("acc_norm"));
}

TEST(Metrics, RulersPercentHasTwoDigits) {
  std::vector<double> eighths(8, 0.0);
  eighths[0] = 0.97;  // a mean of 12.125 percent: half to even
  EXPECT_DOUBLE_EQ(aggregate("string_match_all", all(eighths), 0).value, 12.12);
  EXPECT_DOUBLE_EQ(aggregate("string_match_all", all({1, 0, 1}), 0).value, 66.67);
}

}  // namespace
}  // namespace kata::harness
