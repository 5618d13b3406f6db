#include "eval/grid.h"

#include <algorithm>
#include <limits>

#include "tasks/example_source.h"
#include "train/answers.h"

namespace kata {

namespace {

constexpr int64_t slice_tokens = 16384;

struct LossSum {
  double nats = 0;
  int64_t tokens = 0;
};

// Answers to a batch, and its losses added up; on a planning arena only the memory is taken.
void read_batch(LanguageModel& model, Context& ctx, Batch& batch, Answers& answers, LossSum& sum) {
  const Shape shape{batch.shape.rows, batch.shape.length};
  const Tensor inputs(batch.inputs.data(), DType::i32, shape),
      targets(batch.targets.data(), DType::i32, shape);
  answer(model, ctx, inputs, targets, {}, answers);
  if (ctx.planning()) return;
  LossSum part;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] == kNoTarget) continue;
    part.nats += answers.losses[i];
    ++part.tokens;
  }
  sum.nats += part.nats;
  sum.tokens += part.tokens;
}

size_t plan_batches(LanguageModel& model, const std::vector<BatchShape>& shapes, const Processor& processor) {
  Arena arena;
  Context ctx(arena, processor);
  LossSum unused;
  Answers nothing;
  for (const BatchShape& shape : shapes) {
    Batch batch;
    batch.shape = shape;
    read_batch(model, ctx, batch, nothing, unused);
  }
  return arena.peak();
}

}  // namespace

std::string GridCell::name() const {
  std::string name = fmt::format("{}x{}", spec.length, spec.pairs);
  if (spec.rewrites > 0) name += fmt::format("r{}", spec.rewrites);
  if (spec.rewrites > 0 && spec.rewritten < spec.pairs) name += fmt::format("u{}", spec.rewritten);
  if (spec.rewrites > 0 && spec.layout != "block") name += "-" + spec.layout;
  return name;
}

std::string GridCell::detail() const {
  return spec.rewrites > 0 ? fmt::format("{} r{}", spec.pairs, spec.rewrites)
                           : fmt::format("{} pairs", spec.pairs);
}

double CellScore::metric(const std::string& name) const {
  for (const Metric& metric : metrics)
    if (metric.name == name) return metric.value;
  return std::numeric_limits<double>::quiet_NaN();
}

std::vector<GridCell> grid_of(const SuiteConfig& suite) {
  const std::vector<ExampleSpec> specs = test_specs(suite.task, suite.evaluation);
  std::vector<GridCell> grid;
  for (size_t i = 0; i < specs.size(); ++i) {
    GridCell cell{specs[i]};
    for (const GridCell& other : grid)
      if (other.name() == cell.name())
        fail(ExitCode::usage, "evaluation: two cells of length {} with {} pairs{}; leave out one of the two",
             specs[i].length, specs[i].pairs, specs[i].rewrites > 0 ? fmt::format(" ({})", cell.name()) : "");
    for (const TaskSegment& segment : suite.task.segments)
      cell.trained = cell.trained || segment.same_kind(suite.evaluation[i]);
    grid.push_back(cell);
  }
  return grid;
}

int64_t slice_examples(const GridCell& cell) {
  return std::clamp<int64_t>(slice_tokens / cell.spec.length, 1, cell.spec.examples);
}

bool score_cell(LanguageModel& model, const GridCell& cell, const SliceDone& slice_done, CellScore& score,
                const Processor& processor) {
  const int64_t rows = slice_examples(cell);
  ExampleSource source({cell.spec}, rows);
  KATA_CHECK(model.config().vocab >= source.vocab(), "vocabulary {} below {}", model.config().vocab,
             source.vocab());
  const int64_t slices = source.steps_per_epoch();
  Arena arena(plan_batches(model, {source.shape(0), source.shape(slices - 1)}, processor),
              processor.memory());
  Context ctx(arena, processor);
  const std::unique_ptr<Scorer> scorer = make_scorer(cell.spec, source.set(0));
  Batch batch;
  Answers answers;
  LossSum loss;
  for (int64_t slice = 0; slice < slices; ++slice) {
    source.fill(slice, batch);
    read_batch(model, ctx, batch, answers, loss);
    scorer->add(batch, slice * rows, answers.predictions.data());
    if (!slice_done(batch.shape.rows) && slice + 1 < slices) return false;
  }
  score = {scorer->metrics(), loss.nats / static_cast<double>(loss.tokens), cell.spec.examples};
  return true;
}

}  // namespace kata
