#include "tasks/mqar_source.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"

namespace kata {

namespace {

std::vector<MqarSpec> with_seeds(const std::vector<TaskSegment>& segments, int64_t vocab,
                                 const std::vector<uint32_t>& seeds) {
  std::vector<MqarSpec> specs;
  for (size_t i = 0; i < segments.size(); ++i) {
    specs.push_back({segments[i].length, segments[i].pairs, segments[i].examples, vocab, seeds[i]});
    check_mqar(specs.back());
  }
  return specs;
}

SegmentSeeds seeds_of(const TaskConfig& task, size_t tests) {
  return segment_seeds(static_cast<uint32_t>(task.seed), static_cast<int64_t>(task.segments.size()),
                       static_cast<int64_t>(tests));
}

}  // namespace

std::vector<MqarSpec> mqar_train_specs(const TaskConfig& task) {
  return with_seeds(task.segments, task.vocab, seeds_of(task, 0).train);
}

std::vector<MqarSpec> mqar_test_specs(const TaskConfig& task, const std::vector<TaskSegment>& grid) {
  return with_seeds(grid, task.vocab, seeds_of(task, grid.size()).test);
}

std::vector<TaskSegment> mqar_validation_grid(const TaskConfig& task) {
  std::vector<TaskSegment> grid = task.segments;
  for (TaskSegment& segment : grid) segment.examples = task.test_examples;
  return grid;
}

MqarSource::MqarSource(const std::vector<MqarSpec>& specs, int64_t rows) : rows_(rows) {
  KATA_CHECK(rows > 0, "rows = {}", rows);
  if (specs.empty())
    fail(ExitCode::usage, "mqar: no segments; list at least one {{length, pairs, examples}}");
  for (const MqarSpec& spec : specs) {
    check_mqar(spec);
    if (spec.vocab != specs[0].vocab)
      fail(ExitCode::usage, "mqar: segments with vocabularies {} and {}; expected one vocabulary",
           specs[0].vocab, spec.vocab);
  }
  data_.resize(specs.size());
  parallel_for(sets(), [&](int64_t i) {
    const auto set = static_cast<size_t>(i);
    data_[set] = std::make_unique<MqarData>(specs[set]);
  });
  first_step_.push_back(0);
  for (const MqarSpec& spec : specs)
    first_step_.push_back(first_step_.back() + ceil_div(spec.examples, rows));
}

MqarSource::Place MqarSource::place(int64_t step) const {
  KATA_CHECK(step >= 0, "step = {}", step);
  const int64_t in_epoch = step % steps_per_epoch();
  const auto next = std::upper_bound(first_step_.begin(), first_step_.end(), in_epoch);
  const auto set = static_cast<size_t>(next - first_step_.begin()) - 1;
  const int64_t row = (in_epoch - first_step_[set]) * rows_;
  return {data_[set].get(), row, std::min(rows_, data_[set]->spec().examples - row)};
}

BatchShape MqarSource::shape(int64_t step) const {
  const Place at = place(step);
  return {at.rows, at.data->spec().length};
}

BatchShape MqarSource::largest() const {
  BatchShape largest;
  for (const auto& data : data_) {
    const BatchShape shape{std::min(rows_, data->spec().examples), data->spec().length};
    if (shape.tokens() > largest.tokens()) largest = shape;
  }
  return largest;
}

int64_t MqarSource::vocab() const {
  return data_[0]->spec().vocab;
}

void MqarSource::fill(int64_t step, Batch& batch) {
  const Place at = place(step);
  batch.shape = {at.rows, at.data->spec().length};
  batch.inputs.resize(static_cast<size_t>(batch.shape.tokens()));
  batch.targets.resize(batch.inputs.size());
  for (int64_t r = 0; r < at.rows; ++r) {
    const int64_t begin = r * batch.shape.length;
    at.data->render(at.row + r, batch.inputs.data() + begin, batch.targets.data() + begin);
  }
}

}  // namespace kata
