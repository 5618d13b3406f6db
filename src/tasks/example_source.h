// Batches of a generated task, for training, validation and evaluation.
#pragma once

#include <memory>

#include "config/data_config.h"
#include "data/batch.h"
#include "tasks/example_set.h"

namespace kata {

// What to generate for the segments of a task. The seeds come from task.seed as in zoology: those of all
// training segments first, then the test ones.
std::vector<ExampleSpec> train_specs(const TaskConfig& task);
// Held-out examples over any grid.
std::vector<ExampleSpec> test_specs(const TaskConfig& task, const std::vector<TaskSegment>& grid);
// The grid of validation: the task's segments with task.test_examples examples each.
std::vector<TaskSegment> validation_grid(const TaskConfig& task);

// The sets in order, `rows` examples a step, what is left in the last step of a set. Every epoch is the same.
class ExampleSource : public BatchSource {
 public:
  // Generates all sets, in parallel. ExitCode::usage as check_examples, or where there is no set.
  ExampleSource(const std::vector<ExampleSpec>& specs, int64_t rows);

  BatchShape shape(int64_t step) const override;
  BatchShape largest() const override;
  int64_t vocab() const override;
  void fill(int64_t step, Batch& batch) override;
  int64_t steps_per_epoch() const override { return first_step_.back(); }

  int64_t sets() const { return static_cast<int64_t>(sets_.size()); }
  const ExampleSet& set(int64_t i) const { return *sets_[static_cast<size_t>(i)]; }
  // The steps of a set within an epoch are first_step(set) .. first_step(set + 1) - 1.
  int64_t first_step(int64_t set) const { return first_step_[static_cast<size_t>(set)]; }

 private:
  struct Place {
    size_t set;
    int64_t row, rows;  // of the step
  };
  Place place(int64_t step) const;

  std::vector<ExampleSpec> specs_;
  std::vector<std::unique_ptr<ExampleSet>> sets_;
  std::vector<int64_t> first_step_;  // [sets + 1]
  int64_t rows_;
};

}  // namespace kata
