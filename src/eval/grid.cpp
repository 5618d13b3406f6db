#include "eval/grid.h"

#include <algorithm>

#include "tasks/mqar_source.h"
#include "train/learner.h"

namespace kata {

namespace {

constexpr int64_t slice_tokens = 16384;

// One step of another source, as a source of its own.
class OneStep : public BatchSource {
 public:
  OneStep(BatchSource& source, int64_t step) : source_(source), step_(step) {}

  BatchShape shape(int64_t) const override { return source_.shape(step_); }
  BatchShape largest() const override { return source_.shape(step_); }
  int64_t vocab() const override { return source_.vocab(); }
  void fill(int64_t, Batch& batch) override { source_.fill(step_, batch); }
  int64_t steps_per_epoch() const override { return 1; }

 private:
  BatchSource& source_;
  int64_t step_;
};

}  // namespace

std::string GridCell::name() const {
  return fmt::format("{}x{}", spec.length, spec.pairs);
}

std::vector<GridCell> grid_of(const SuiteConfig& suite) {
  std::vector<GridCell> grid;
  for (const MqarSpec& spec : mqar_test_specs(suite.task, suite.evaluation)) {
    GridCell cell{spec};
    for (const GridCell& other : grid)
      if (other.name() == cell.name())
        fail(ExitCode::usage, "evaluation: two cells of length {} with {} pairs; leave out one of the two",
             spec.length, spec.pairs);
    for (const TaskSegment& segment : suite.task.segments)
      cell.trained = cell.trained || (segment.length == spec.length && segment.pairs == spec.pairs);
    grid.push_back(cell);
  }
  return grid;
}

int64_t slice_examples(const GridCell& cell) {
  return std::clamp<int64_t>(slice_tokens / cell.spec.length, 1, cell.spec.examples);
}

bool score_cell(LanguageModel& model, const GridCell& cell, const SliceDone& slice_done, CellScore& score) {
  const int64_t rows = slice_examples(cell), length = cell.spec.length;
  const int64_t tokens = rows * length;
  MqarSource source({cell.spec}, rows);
  KATA_CHECK(model.config().vocab >= source.vocab(), "vocabulary {} below {}", model.config().vocab,
             source.vocab());
  std::vector<BatchShape> shapes{{rows, length}};
  if (cell.spec.examples % rows != 0) shapes.push_back({cell.spec.examples % rows, length});
  Arena arena(plan_evaluation(model, shapes, tokens));
  Evaluation sums;
  for (int64_t step = 0; step < source.steps_per_epoch(); ++step) {
    OneStep slice(source, step);
    const Evaluation part = evaluate(model, slice, 1, tokens, arena);
    sums.loss_sum += part.loss_sum;
    sums.tokens += part.tokens;
    sums.example_accuracy_sum += part.example_accuracy_sum;
    sums.examples += part.examples;
    if (!slice_done(part.examples) && step + 1 < source.steps_per_epoch()) return false;
  }
  score = {sums.example_accuracy_sum / static_cast<double>(sums.examples), sums.loss(), sums.examples};
  return true;
}

}  // namespace kata
