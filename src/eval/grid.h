// The grid of a suite: cells of held-out examples, and how a model is scored on one (EVAL B.1, B.3).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/suite_config.h"
#include "eval/task_score.h"
#include "nn/language_model.h"

namespace kata {

struct GridCell {
  ExampleSpec spec;
  bool trained = false;  // the training segments hold examples of this kind: in distribution

  // "256x64": length x pairs. Overwrite: "256x64r2", rewritten twice; "256x64r2u16-interleaved", 16 of the
  // keys, in a layout other than block.
  std::string name() const;
  std::string detail() const;  // "64 pairs", as the second line below a length
};

// The cells in the order of the config, with the seeds of test segments. Two cells of the same kind
// are ExitCode::usage: results are told apart by their names.
std::vector<GridCell> grid_of(const SuiteConfig& suite);

struct CellScore {
  std::vector<Metric> metrics;  // those of metric_names()
  double loss = 0;              // nats, mean over labelled positions; NaN where the model gives no number
  int64_t examples = 0;

  double headline() const { return metrics.at(0).value; }
  double metric(const std::string& name) const;  // NaN where the cell has none of this name
};

// Called after each slice of a cell with the examples in it; false stops.
using SliceDone = std::function<bool(int64_t examples)>;

// Reads the whole cell; false when slice_done stopped it. The model's values are bound and its vocabulary
// holds the task's. Slices have a fixed size, so the score does not depend on who asks. ExitCode::device when
// the memory cannot be had.
bool score_cell(LanguageModel& model, const GridCell& cell, const SliceDone& slice_done, CellScore& score,
                const Processor& processor = {});

// Examples of a slice of this cell.
int64_t slice_examples(const GridCell& cell);

}  // namespace kata
