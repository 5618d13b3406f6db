#include "eval/task_score.h"

#include <algorithm>

#include "base/error.h"

namespace kata {

namespace {

class RecallScorer : public Scorer {
 public:
  void add(const Batch& batch, int64_t, const int32_t* predictions) override {
    const int64_t length = batch.shape.length;
    double sum = 0;
    for (int64_t row = 0; row < batch.shape.rows; ++row) {
      int64_t asked = 0, right = 0;
      for (int64_t i = row * length; i < (row + 1) * length; ++i) {
        const int32_t target = batch.targets[static_cast<size_t>(i)];
        if (target == kNoTarget) continue;
        ++asked;
        right += predictions[i] == target;
      }
      sum += static_cast<double>(right) / static_cast<double>(asked);
    }
    sum_ += sum;
    examples_ += batch.shape.rows;
  }
  std::vector<Metric> metrics() const override {
    return {{"accuracy", sum_ / static_cast<double>(examples_)}};
  }

 private:
  double sum_ = 0;
  int64_t examples_ = 0;
};

// Questions on one class of keys and what they were answered with.
struct Answers {
  int64_t asked = 0, latest = 0, stale = 0, previous = 0, first = 0, other_key = 0, junk = 0;

  double rate(int64_t count) const { return static_cast<double>(count) / static_cast<double>(asked); }
};

class OverwriteScorer : public Scorer {
 public:
  OverwriteScorer(const ExampleSpec& spec, const ExampleSet& examples)
      : examples_(examples), seen_(static_cast<size_t>(spec.vocab), -1) {}

  void add(const Batch& batch, int64_t first, const int32_t* predictions) override {
    for (int64_t row = 0; row < batch.shape.rows; ++row) {
      examples_.questions(first + row, questions_);
      for (const Question& question : questions_)
        for (const int32_t value : question.values) seen_[static_cast<size_t>(value)] = first + row;
      for (const Question& question : questions_)
        count(question, predictions[row * batch.shape.length + question.position], first + row);
    }
  }

  std::vector<Metric> metrics() const override {
    const Answers &r = rewritten_, &u = untouched_;
    std::vector<Metric> all = {{"latest_acc", r.rate(r.latest)},        {"stale_rate", r.rate(r.stale)},
                               {"stale_prev_rate", r.rate(r.previous)}, {"first_rate", r.rate(r.first)},
                               {"other_key_rate", r.rate(r.other_key)}, {"junk_rate", r.rate(r.junk)}};
    if (u.asked > 0)
      all.insert(all.end(), {{"untouched_acc", u.rate(u.latest)},
                             {"untouched_other_rate", u.rate(u.other_key)},
                             {"untouched_junk_rate", u.rate(u.junk)}});
    return all;
  }

 private:
  // A value may have been bound twice only in the zoology layout: the latest binding counts.
  void count(const Question& question, int32_t answer, int64_t row) {
    const std::vector<int32_t>& values = question.values;
    Answers& answers = values.size() > 1 ? rewritten_ : untouched_;
    ++answers.asked;
    if (answer == values.back()) {
      ++answers.latest;
    } else if (std::find(values.begin(), values.end(), answer) != values.end()) {
      ++answers.stale;
      answers.previous += answer == values[values.size() - 2];
      answers.first += answer == values[0];
    } else {
      const bool of_another = answer >= 0 && answer < static_cast<int64_t>(seen_.size()) &&
                              seen_[static_cast<size_t>(answer)] == row;
      ++(of_another ? answers.other_key : answers.junk);
    }
  }

  const ExampleSet& examples_;
  std::vector<int64_t> seen_;  // [vocab] the last row that bound this value
  std::vector<Question> questions_;
  Answers rewritten_, untouched_;
};

}  // namespace

std::vector<std::string> metric_names(const ExampleSpec& spec) {
  if (spec.task != "overwrite") return {"accuracy"};
  std::vector<std::string> names = {"latest_acc", "stale_rate",     "stale_prev_rate",
                                    "first_rate", "other_key_rate", "junk_rate"};
  if (spec.rewritten < spec.pairs)
    names.insert(names.end(), {"untouched_acc", "untouched_other_rate", "untouched_junk_rate"});
  return names;
}

std::vector<ShownMetric> shown_metrics(const std::string& task) {
  if (task != "overwrite") return {{"accuracy", "accuracy"}};
  return {{"latest_acc", "latest accuracy"}, {"stale_rate", "stale rate"}};
}

std::unique_ptr<Scorer> make_scorer(const ExampleSpec& spec, const ExampleSet& examples) {
  if (spec.task == "overwrite") return std::make_unique<OverwriteScorer>(spec, examples);
  return std::make_unique<RecallScorer>();
}

OverwriteChance overwrite_chance(const ExampleSpec& spec) {
  const auto rewrites = static_cast<double>(spec.rewrites);
  const auto all = static_cast<double>(spec.pairs + spec.rewrites * spec.rewritten);
  return {1 / all, rewrites / all, 1 / (rewrites + 1), rewrites / (rewrites + 1)};
}

}  // namespace kata
