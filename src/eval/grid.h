// The grid of a suite: cells of held-out examples, and how a model is scored on one (EVAL B.1, B.3).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/suite_config.h"
#include "nn/language_model.h"
#include "tasks/mqar.h"

namespace kata {

struct GridCell {
  MqarSpec spec;
  bool trained = false;  // the training segments hold this length and number of pairs: in distribution

  std::string name() const;  // "256x64": length x pairs
};

// The cells in the order of the config, with the seeds of test segments. Two cells of the same length and
// pairs are ExitCode::usage: results are told apart by these two.
std::vector<GridCell> grid_of(const SuiteConfig& suite);

struct CellScore {
  double accuracy = 0;  // mean over examples of the fraction of labelled positions whose argmax is the label
  double loss = 0;      // nats, mean over labelled positions; NaN where the model gives no number
  int64_t examples = 0;
};

// Called after each slice of a cell with the examples in it; false stops.
using SliceDone = std::function<bool(int64_t examples)>;

// Reads the whole cell; false when slice_done stopped it. The model's values are bound and its vocabulary
// holds the task's. Slices have a fixed size, so the score does not depend on who asks. ExitCode::device when
// the memory cannot be had.
bool score_cell(LanguageModel& model, const GridCell& cell, const SliceDone& slice_done, CellScore& score);

// Examples of a slice of this cell.
int64_t slice_examples(const GridCell& cell);

}  // namespace kata
