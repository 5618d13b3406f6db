#include "eval/cost.h"

#include <algorithm>
#include <chrono>

#include "base/parallel.h"
#include "tasks/example_source.h"
#include "train/learner.h"

namespace kata {

namespace {

constexpr int64_t measured_tokens = 4096;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The second of two runs: the first one touches the memory.
double warm_seconds(const std::function<void()>& body) {
  body();
  return seconds_of(body);
}

ExampleSpec few_examples(ExampleSpec spec, int64_t most) {
  spec.examples = std::clamp<int64_t>(measured_tokens / spec.length, 1, std::min(most, spec.examples));
  return spec;
}

BatchShape shape_of(const ExampleSpec& spec) {
  return {spec.examples, spec.length};
}

}  // namespace

ModelCost measure_cost(const SuiteConfig& suite, const SuiteModel& model, const std::vector<GridCell>& grid,
                       Monitor& monitor, const Processor& processor) {
  std::vector<ExampleSpec> training, reading;
  std::vector<BatchShape> training_shapes, reading_shapes;
  for (const ExampleSpec& spec : train_specs(suite.task)) {
    training.push_back(few_examples(spec, suite.train.batch));
    training_shapes.push_back(shape_of(training.back()));
  }
  for (const GridCell& cell : grid) {
    reading.push_back(few_examples(cell.spec, cell.spec.examples));
    reading_shapes.push_back(shape_of(reading.back()));
  }
  RunConfig run = run_config(suite, model, suite.train.learning_rates[0]);
  run.train.micro_batch = 0;
  Learner learner(run.model, run.train, run.optimizer, training_shapes, reading_shapes, processor);

  ModelCost cost;
  Batch batch;
  const double update = warm_seconds([&] { learner.update(0, learner.gradient_norm()); });
  for (const ExampleSpec& spec : training) {
    if (monitor.stop() != Stop::none) return {};
    ExampleSource source({spec}, spec.examples);
    source.fill(0, batch);
    const double rows = warm_seconds([&] { learner.gradients(batch); });
    cost.step.push_back(update +
                        rows * static_cast<double>(suite.train.batch) / static_cast<double>(spec.examples));
  }
  for (const ExampleSpec& spec : reading) {
    if (monitor.stop() != Stop::none) return {};
    ExampleSource source({spec}, spec.examples);
    const double rows = warm_seconds([&] { learner.evaluate(source, 1); });
    cost.example.push_back(rows / static_cast<double>(spec.examples));
  }
  return cost;
}

StepOrder::StepOrder(const SuiteConfig& suite) : first_{0} {
  for (const TaskSegment& segment : suite.task.segments)
    first_.push_back(first_.back() + ceil_div(segment.examples, suite.train.batch));
}

size_t StepOrder::segment(int64_t step) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), step % first_.back());
  return static_cast<size_t>(next - first_.begin()) - 1;
}

double StepOrder::seconds_before(const ModelCost& cost, int64_t end) const {
  const int64_t epochs = end / first_.back(), rest = end % first_.back();
  double seconds = 0;
  for (size_t i = 0; i < cost.step.size(); ++i) {
    const int64_t steps = first_[i + 1] - first_[i];
    const int64_t begun = std::clamp<int64_t>(rest - first_[i], 0, steps);
    seconds += cost.step[i] *
               (static_cast<double>(epochs) * static_cast<double>(steps) + static_cast<double>(begun));
  }
  return seconds;
}

double StepOrder::seconds(const ModelCost& cost, int64_t begin, int64_t end) const {
  return seconds_before(cost, end) - seconds_before(cost, begin);
}

}  // namespace kata
