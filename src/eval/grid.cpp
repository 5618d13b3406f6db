#include "eval/grid.h"

#include <algorithm>
#include <limits>

#include "ops/dispatch.h"
#include "tasks/example_source.h"

namespace kata {

namespace {

constexpr int64_t slice_tokens = 16384;

struct LossSum {
  double nats = 0;
  int64_t tokens = 0;
};

// Answers of a batch, [rows * length], and its losses added up; on a planning arena only the memory is taken.
// The predictions live until the scope around it ends.
Tensor answers(LanguageModel& model, Context& ctx, Batch& batch, LossSum& sum) {
  const Shape shape{batch.shape.rows, batch.shape.length}, tokens{batch.shape.tokens()};
  const Tensor inputs(batch.inputs.data(), DType::i32, shape),
      targets(batch.targets.data(), DType::i32, shape);
  const Tensor losses = ctx.arena.take("losses", model.parameters().dtype(), tokens);
  const Tensor predictions = ctx.arena.take("predictions", DType::i32, tokens);
  model.evaluate(ctx, losses, predictions, inputs, targets);
  if (ctx.planning()) return predictions;
  LossSum part;
  dispatch_float(losses.dtype(), [&]<class T>() {
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] == kNoTarget) continue;
      part.nats += static_cast<double>(losses.as<T>()[i]);
      ++part.tokens;
    }
  });
  sum.nats += part.nats;
  sum.tokens += part.tokens;
  return predictions;
}

size_t plan_answers(LanguageModel& model, const std::vector<BatchShape>& shapes) {
  Arena arena;
  Context ctx{arena};
  LossSum unused;
  for (const BatchShape& shape : shapes) {
    Arena::Scope scope(arena);
    Batch batch;
    batch.shape = shape;
    answers(model, ctx, batch, unused);
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

bool score_cell(LanguageModel& model, const GridCell& cell, const SliceDone& slice_done, CellScore& score) {
  const int64_t rows = slice_examples(cell);
  ExampleSource source({cell.spec}, rows);
  KATA_CHECK(model.config().vocab >= source.vocab(), "vocabulary {} below {}", model.config().vocab,
             source.vocab());
  const int64_t slices = source.steps_per_epoch();
  Arena arena(plan_answers(model, {source.shape(0), source.shape(slices - 1)}));
  Context ctx{arena};
  const std::unique_ptr<Scorer> scorer = make_scorer(cell.spec, source.set(0));
  Batch batch;
  LossSum loss;
  for (int64_t slice = 0; slice < slices; ++slice) {
    Arena::Scope scope(arena);
    source.fill(slice, batch);
    const Tensor predictions = answers(model, ctx, batch, loss);
    scorer->add(batch, slice * rows, predictions.as<int32_t>());
    if (!slice_done(batch.shape.rows) && slice + 1 < slices) return false;
  }
  score = {scorer->metrics(), loss.nats / static_cast<double>(loss.tokens), cell.spec.examples};
  return true;
}

}  // namespace kata
