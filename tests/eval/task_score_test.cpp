// Answers made by hand, and the rates that must come of them.
#include "eval/task_score.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "eval/grid.h"

namespace kata {
namespace {

// Examples that are written down: a list of questions each, of `length` tokens.
class Written : public ExampleSet {
 public:
  Written(int64_t length, std::vector<std::vector<Question>> rows)
      : length_(length), rows_(std::move(rows)) {}
  void render(int64_t row, int32_t* inputs, int32_t* targets) const override {
    std::fill_n(inputs, length_, 0);
    std::fill_n(targets, length_, kNoTarget);
    for (const Question& question : rows_[static_cast<size_t>(row)]) {
      inputs[question.position] = question.key;
      targets[question.position] = question.values.back();
    }
  }
  void questions(int64_t row, std::vector<Question>& questions) const override {
    questions = rows_[static_cast<size_t>(row)];
  }

 private:
  int64_t length_;
  std::vector<std::vector<Question>> rows_;
};

constexpr int64_t length = 8;

// Adds the rows first .. first + rows - 1; `answers` by row and position, kNoTarget elsewhere.
void add(Scorer& scorer, const ExampleSet& set, int64_t first,
         const std::vector<std::map<int64_t, int32_t>>& answers) {
  Batch batch;
  batch.shape = {static_cast<int64_t>(answers.size()), length};
  batch.inputs.resize(static_cast<size_t>(batch.shape.tokens()));
  batch.targets.resize(batch.inputs.size());
  std::vector<int32_t> predictions(batch.inputs.size(), kNoTarget);
  for (size_t row = 0; row < answers.size(); ++row) {
    const size_t begin = row * length;
    set.render(first + static_cast<int64_t>(row), batch.inputs.data() + begin, batch.targets.data() + begin);
    for (const auto& [position, answer] : answers[row])
      predictions[begin + static_cast<size_t>(position)] = answer;
  }
  scorer.add(batch, first, predictions.data());
}

std::map<std::string, double> rates(const Scorer& scorer) {
  std::map<std::string, double> all;
  for (const Metric& metric : scorer.metrics()) all[metric.name] = metric.value;
  return all;
}

ExampleSpec overwrite(int64_t pairs, int64_t rewrites, int64_t rewritten) {
  return {length, pairs, 10, 100, 0, "overwrite", rewrites, rewritten, "block"};
}

// Key 1 was bound to 51, 52, 53, key 2 to 61, key 3 to 71, 72, 73. Every kind of answer to key 1 once.
TEST(OverwriteScore, EveryKindOfAnswer) {
  const std::vector<Question> row = {{1, 1, {51, 52, 53}}, {3, 2, {61}}, {5, 3, {71, 72, 73}}};
  const Written set(length, std::vector<std::vector<Question>>(8, row));
  struct Case {
    const char* what;
    int32_t answer;
    double latest, stale, previous, first, other, junk;
  };
  for (const Case& c :
       {Case{"latest", 53, 1, 0, 0, 0, 0, 0}, Case{"the one before", 52, 0, 1, 1, 0, 0, 0},
        Case{"the first", 51, 0, 1, 0, 1, 0, 0}, Case{"of a key bound once", 61, 0, 0, 0, 0, 1, 0},
        Case{"stale of another key", 71, 0, 0, 0, 0, 1, 0},
        Case{"latest of another key", 73, 0, 0, 0, 0, 1, 0}, Case{"a value of no key", 99, 0, 0, 0, 0, 0, 1},
        Case{"a key", 1, 0, 0, 0, 0, 0, 1}, Case{"the filler", 0, 0, 0, 0, 0, 0, 1},
        Case{"beyond the task's vocabulary", 100, 0, 0, 0, 0, 0, 1}}) {
    SCOPED_TRACE(c.what);
    const auto scorer = make_scorer(overwrite(3, 2, 2), set);
    add(*scorer, set, 0, {{{1, c.answer}, {3, 61}, {5, 73}}});
    const auto found = rates(*scorer);
    EXPECT_EQ(found.at("latest_acc"), (c.latest + 1) / 2);  // key 3 is answered rightly
    EXPECT_EQ(found.at("stale_rate"), c.stale / 2);
    EXPECT_EQ(found.at("stale_prev_rate"), c.previous / 2);
    EXPECT_EQ(found.at("first_rate"), c.first / 2);
    EXPECT_EQ(found.at("other_key_rate"), c.other / 2);
    EXPECT_EQ(found.at("junk_rate"), c.junk / 2);
    EXPECT_EQ(found.at("untouched_acc"), 1);
  }
  const auto scorer = make_scorer(overwrite(3, 2, 2), set);
  add(*scorer, set, 0, {{{3, 61}}, {{3, 61}}, {{3, 52}}, {{3, 99}}});
  add(*scorer, set, 4, {{{3, 73}}, {{3, 2}}, {{3, 61}}, {{3, 61}}});
  const auto found = rates(*scorer);
  EXPECT_EQ(found.at("untouched_acc"), 0.5);
  EXPECT_EQ(found.at("untouched_other_rate"), 0.25);
  EXPECT_EQ(found.at("untouched_junk_rate"), 0.25);
  EXPECT_EQ(found.at("junk_rate"), 1) << "no answer is none of the values";
}

// Values of one example are junk in the next one, also across batches.
TEST(OverwriteScore, AnotherExamplesValuesAreJunk) {
  const Written set(length, {{{1, 1, {51, 52}}}, {{1, 1, {61, 62}}}, {{1, 1, {51, 53}}}});
  const auto scorer = make_scorer(overwrite(1, 1, 1), set);
  add(*scorer, set, 0, {{{1, 62}}, {{1, 51}}});
  add(*scorer, set, 2, {{{1, 52}}});
  EXPECT_EQ(rates(*scorer).at("junk_rate"), 1);
}

// zoology's generator may bind a key to the value that it had, or to another key's.
TEST(OverwriteScore, AValueBoundTwiceIsTheLatest) {
  const Written set(length, {{{1, 1, {51, 51}}, {3, 2, {61, 51}}}});
  const auto scorer = make_scorer(overwrite(2, 1, 2), set);
  add(*scorer, set, 0, {{{1, 51}, {3, 51}}});
  EXPECT_EQ(rates(*scorer).at("latest_acc"), 1);
  EXPECT_EQ(rates(*scorer).at("stale_rate"), 0);
}

// Answers at random, among all tokens: every class occurs, and each kind of question sums to one.
TEST(OverwriteScore, ClassesSumToOneAndHaveTheirNames) {
  for (const char* layout : {"block", "interleaved", "zoology"}) {
    const int64_t rewrites = std::string(layout) == "zoology" ? 1 : 3;
    for (const int64_t rewritten : {2, 4}) {
      const ExampleSpec spec{64, 4, 200, 66, 5, "overwrite", rewrites, rewritten, layout};
      const auto set = make_examples(spec);
      const auto scorer = make_scorer(spec, *set);
      Batch batch;
      batch.shape = {200, 64};
      batch.inputs.resize(200 * 64);
      batch.targets.resize(200 * 64);
      std::vector<int32_t> predictions(200 * 64);
      for (size_t i = 0; i < predictions.size(); ++i) predictions[i] = static_cast<int32_t>(i * i % 67);
      scorer->add(batch, 0, predictions.data());
      const auto found = rates(*scorer);
      EXPECT_NEAR(found.at("latest_acc") + found.at("stale_rate") + found.at("other_key_rate") +
                      found.at("junk_rate"),
                  1, 1e-12);
      EXPECT_GE(found.at("stale_rate") + 1e-12, found.at("stale_prev_rate"));
      if (rewritten < 4) {
        EXPECT_NEAR(
            found.at("untouched_acc") + found.at("untouched_other_rate") + found.at("untouched_junk_rate"), 1,
            1e-12);
      }
      for (const auto& [name, value] : found) EXPECT_GT(value, 0) << name;
      std::vector<std::string> names;
      for (const Metric& metric : scorer->metrics()) names.push_back(metric.name);
      EXPECT_EQ(names, metric_names(spec));
    }
  }
}

TEST(OverwriteScore, ChanceCountsValues) {
  const OverwriteChance chance = overwrite_chance(overwrite(8, 2, 4));
  EXPECT_DOUBLE_EQ(chance.latest_of_all, 1.0 / 16);
  EXPECT_DOUBLE_EQ(chance.stale_of_all, 2.0 / 16);
  EXPECT_DOUBLE_EQ(chance.latest_of_key, 1.0 / 3);
  EXPECT_DOUBLE_EQ(chance.stale_of_key, 2.0 / 3);
}

TEST(RecallScore, MeanOverExamples) {
  const Written set(length, {{{1, 1, {51}}, {3, 2, {52}}}, {{1, 3, {53}}}});
  const ExampleSpec spec{length, 2, 2, 100, 0};
  const auto scorer = make_scorer(spec, set);
  add(*scorer, set, 0, {{{1, 51}, {3, 51}}, {{1, 53}}});
  EXPECT_EQ(rates(*scorer).at("accuracy"), 0.75);
  EXPECT_EQ(metric_names(spec), std::vector<std::string>{"accuracy"});
}

TEST(CellScore, NamesItsMetrics) {
  const CellScore score{{{"latest_acc", 0.5}, {"stale_rate", 0.25}}, 1, 10};
  EXPECT_EQ(score.headline(), 0.5);
  EXPECT_EQ(score.metric("stale_rate"), 0.25);
  EXPECT_TRUE(std::isnan(score.metric("untouched_acc")));
}

}  // namespace
}  // namespace kata
