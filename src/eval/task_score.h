// What is measured on a task: metrics of a cell, made of a model's answers (EVAL B.3, C.1).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "tasks/example_set.h"

namespace kata {

struct Metric {
  std::string name;
  double value = 0;
};

// The metrics of a cell, in their order; the first one is the headline, by which the best of several models
// is found.
//   mqar       accuracy                mean over examples of the fraction of right answers
//   overwrite  of the questions on rewritten keys, the fraction that is answered with
//              latest_acc              the value bound last
//              stale_rate              an earlier value of the same key; of these
//              stale_prev_rate           the one before the last
//              first_rate                the first one (the same if the key was rewritten once)
//              other_key_rate          a value of another key of the example
//              junk_rate               anything else; latest, stale, other_key and junk sum to 1
//              and of the questions on keys that were not rewritten, where there are any,
//              untouched_acc           their value
//              untouched_other_rate    a value of another key
//              untouched_junk_rate     anything else; the three sum to 1
std::vector<std::string> metric_names(const ExampleSpec& spec);

// A metric that the table and the charts show; results.json has all.
struct ShownMetric {
  std::string name;   // of the list above
  std::string title;  // "stale rate"
};
std::vector<ShownMetric> shown_metrics(const std::string& task);  // the headline first

// Adds up a model's answers. What is added in the same order gives the same bits.
class Scorer {
 public:
  virtual ~Scorer() = default;
  // predictions: [rows * length] of the batch, whose first example is row `first` of the set.
  virtual void add(const Batch& batch, int64_t first, const int32_t* predictions) = 0;
  virtual std::vector<Metric> metrics() const = 0;
};

// `examples` must outlive it.
std::unique_ptr<Scorer> make_scorer(const ExampleSpec& spec, const ExampleSet& examples);

// What guessing gives on overwrite: among all values of the example, and among those of the key alone.
struct OverwriteChance {
  double latest_of_all, stale_of_all, latest_of_key, stale_of_key;
};
OverwriteChance overwrite_chance(const ExampleSpec& spec);

}  // namespace kata
