// What a suite will cost, from a few measured steps.
#pragma once

#include <vector>

#include "eval/grid.h"
#include "eval/monitor.h"

namespace kata {

struct ModelCost {
  std::vector<double> step;     // seconds of a training step, per segment of the task
  std::vector<double> example;  // seconds to read an example, per cell of the grid
};

// Times a few rows of each kind and scales them up. Empty where the monitor says stop.
ModelCost measure_cost(const SuiteConfig& suite, const SuiteModel& model, const std::vector<GridCell>& grid,
                       Monitor& monitor, const Processor& processor = {});

// The order of the training steps: segment after segment, epoch after epoch.
class StepOrder {
 public:
  explicit StepOrder(const SuiteConfig& suite);

  size_t segment(int64_t step) const;
  // Expected seconds of the steps [begin, end).
  double seconds(const ModelCost& cost, int64_t begin, int64_t end) const;

 private:
  double seconds_before(const ModelCost& cost, int64_t end) const;

  std::vector<int64_t> first_;  // [segments + 1] steps of an epoch
};

}  // namespace kata
