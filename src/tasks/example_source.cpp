#include "tasks/example_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "tasks/mqar.h"

namespace kata {

namespace {

std::vector<ExampleSpec> with_seeds(const std::vector<TaskSegment>& segments, const TaskConfig& task,
                                    const std::vector<uint32_t>& seeds) {
  std::vector<ExampleSpec> specs;
  for (size_t i = 0; i < segments.size(); ++i) {
    const TaskSegment& s = segments[i];
    specs.push_back(
        {s.length, s.pairs, s.examples, task.vocab, seeds[i], task.name, s.rewrites, s.rewritten, s.layout});
    check_examples(specs.back());
  }
  return specs;
}

SegmentSeeds seeds_of(const TaskConfig& task, size_t tests) {
  return segment_seeds(static_cast<uint32_t>(task.seed), static_cast<int64_t>(task.segments.size()),
                       static_cast<int64_t>(tests));
}

}  // namespace

std::vector<ExampleSpec> train_specs(const TaskConfig& task) {
  return with_seeds(task.segments, task, seeds_of(task, 0).train);
}

std::vector<ExampleSpec> test_specs(const TaskConfig& task, const std::vector<TaskSegment>& grid) {
  return with_seeds(grid, task, seeds_of(task, grid.size()).test);
}

std::vector<TaskSegment> validation_grid(const TaskConfig& task) {
  std::vector<TaskSegment> grid = task.segments;
  for (TaskSegment& segment : grid) segment.examples = task.test_examples;
  return grid;
}

ExampleSource::ExampleSource(const std::vector<ExampleSpec>& specs, int64_t rows)
    : specs_(specs), rows_(rows) {
  KATA_CHECK(rows > 0, "rows = {}", rows);
  if (specs.empty())
    fail(ExitCode::usage, "task: no segments; list at least one {{length, pairs, examples}}");
  for (const ExampleSpec& spec : specs) {
    check_examples(spec);
    if (spec.vocab != specs[0].vocab)
      fail(ExitCode::usage, "{}: segments with vocabularies {} and {}; expected one vocabulary", spec.task,
           specs[0].vocab, spec.vocab);
  }
  sets_.resize(specs.size());
  parallel_for(sets(), [&](int64_t i) {
    const auto set = static_cast<size_t>(i);
    sets_[set] = make_examples(specs[set]);
  });
  first_step_.push_back(0);
  for (const ExampleSpec& spec : specs)
    first_step_.push_back(first_step_.back() + ceil_div(spec.examples, rows));
}

ExampleSource::Place ExampleSource::place(int64_t step) const {
  KATA_CHECK(step >= 0, "step = {}", step);
  const int64_t in_epoch = step % steps_per_epoch();
  const auto next = std::upper_bound(first_step_.begin(), first_step_.end(), in_epoch);
  const auto set = static_cast<size_t>(next - first_step_.begin()) - 1;
  const int64_t row = (in_epoch - first_step_[set]) * rows_;
  return {set, row, std::min(rows_, specs_[set].examples - row)};
}

BatchShape ExampleSource::shape(int64_t step) const {
  const Place at = place(step);
  return {at.rows, specs_[at.set].length};
}

BatchShape ExampleSource::largest() const {
  BatchShape largest;
  for (const ExampleSpec& spec : specs_) {
    const BatchShape shape{std::min(rows_, spec.examples), spec.length};
    if (shape.tokens() > largest.tokens()) largest = shape;
  }
  return largest;
}

int64_t ExampleSource::vocab() const {
  return specs_[0].vocab;
}

void ExampleSource::fill(int64_t step, Batch& batch) {
  const Place at = place(step);
  batch.shape = {at.rows, specs_[at.set].length};
  batch.inputs.resize(static_cast<size_t>(batch.shape.tokens()));
  batch.targets.resize(batch.inputs.size());
  for (int64_t r = 0; r < at.rows; ++r) {
    const int64_t begin = r * batch.shape.length;
    sets_[at.set]->render(at.row + r, batch.inputs.data() + begin, batch.targets.data() + begin);
  }
}

}  // namespace kata
