#include "train/learner.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "ops/adamw.h"
#include "ops/global_norm.h"

namespace kata {

namespace {

constexpr DType dtype = DType::f32;

Tensor ids(std::vector<int32_t>& values, const BatchShape& shape, int64_t begin, int64_t end) {
  return Tensor(values.data(), DType::i32, {shape.rows, shape.length}).rows(begin, end);
}
Tensor starts_of(Batch& batch, int64_t begin, int64_t end) {
  return batch.starts.empty() ? Tensor() : ids(batch.starts, batch.shape, begin, end);
}
Tensor null_ids(int64_t rows, int64_t length) {
  return Tensor(nullptr, DType::i32, {rows, length});
}

int64_t micro_rows(const TrainConfig& train, const BatchShape& shape) {
  return train.micro_batch > 0 ? std::min(train.micro_batch, shape.rows) : shape.rows;
}

int64_t slice_rows(const BatchShape& shape, int64_t max_tokens) {
  return std::clamp<int64_t>(max_tokens / shape.length, 1, shape.rows);
}

// Tokens of the largest training slice: evaluation keeps to it, so that it never needs more memory.
int64_t training_slice(const TrainConfig& train, const std::vector<BatchShape>& shapes) {
  int64_t tokens = 1;
  for (const BatchShape& s : shapes) tokens = std::max(tokens, micro_rows(train, s) * s.length);
  return tokens;
}

void evaluate_slice(LanguageModel& model, Context& ctx, const Tensor& inputs, const Tensor& targets,
                    const Tensor& starts, Evaluation& sums) {
  Arena::Scope scope(ctx.arena);
  const Shape tokens{inputs.numel()};
  const Tensor losses = ctx.arena.take("losses", model.parameters().dtype(), tokens);
  const Tensor predictions = ctx.arena.take("predictions", DType::i32, tokens);
  model.evaluate(ctx, losses, predictions, inputs, targets, starts);
  if (ctx.planning()) return;
  dispatch_float(losses.dtype(), [&]<class T>() {
    for (int64_t row = 0; row < inputs.dim(0); ++row) {
      int64_t scored = 0, correct = 0;
      for (int64_t i = row * inputs.dim(1); i < (row + 1) * inputs.dim(1); ++i) {
        if (targets.as<int32_t>()[i] == kNoTarget) continue;
        sums.loss_sum += static_cast<double>(losses.as<T>()[i]);
        correct += predictions.as<int32_t>()[i] == targets.as<int32_t>()[i];
        ++scored;
      }
      if (scored == 0) continue;
      sums.tokens += scored;
      sums.correct += correct;
      sums.example_accuracy_sum += static_cast<double>(correct) / static_cast<double>(scored);
      ++sums.examples;
    }
  });
}

}  // namespace

std::string MemoryPlan::text() const {
  return fmt::format(
      "memory: {} = parameters {} + gradients {} + moments {} + activations {}\nactivations at the peak:\n{}",
      human_bytes(total()), human_bytes(parameters), human_bytes(gradients), human_bytes(moments),
      human_bytes(activations), activation_table);
}

size_t plan_evaluation(LanguageModel& model, const std::vector<BatchShape>& shapes, int64_t max_tokens) {
  Arena arena;
  Context ctx{arena};
  Evaluation unused;
  for (const BatchShape& shape : shapes) {
    const int64_t rows = slice_rows(shape, max_tokens);
    for (const int64_t r : {rows, shape.rows % rows}) {  // the last slice may be smaller
      if (r == 0) continue;
      evaluate_slice(model, ctx, null_ids(r, shape.length), null_ids(r, shape.length), {}, unused);
    }
  }
  return arena.peak();
}

Evaluation evaluate(LanguageModel& model, BatchSource& source, int64_t batches, int64_t max_tokens,
                    Arena& arena) {
  Context ctx{arena};
  Evaluation sums;
  Batch batch;
  const int64_t epoch = source.steps_per_epoch();
  for (int64_t step = 0; step < (batches > 0 ? std::min(batches, epoch) : epoch); ++step) {
    source.fill(step, batch);
    const int64_t rows = slice_rows(batch.shape, max_tokens);
    for (int64_t begin = 0; begin < batch.shape.rows; begin += rows) {
      const int64_t end = std::min(begin + rows, batch.shape.rows);
      evaluate_slice(model, ctx, ids(batch.inputs, batch.shape, begin, end),
                     ids(batch.targets, batch.shape, begin, end), starts_of(batch, begin, end), sums);
    }
  }
  return sums;
}

MemoryPlan Learner::plan(const ModelConfig& config, const TrainConfig& train,
                         const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated) {
  LanguageModel model(config, dtype, train.recompute == "block");
  Arena arena;
  Context ctx{arena};
  for (const BatchShape& shape : shapes) {
    Arena::Scope scope(arena);
    const int64_t rows = micro_rows(train, shape);
    const Tensor losses = arena.take("losses", dtype, {rows * shape.length});
    for (const int64_t r : {rows, shape.rows % rows})  // the last slice may be smaller
      if (r > 0)
        model.forward_backward(ctx, losses.rows(0, r * shape.length), null_ids(r, shape.length),
                               null_ids(r, shape.length), 1);
  }
  global_norm(ctx, model.parameters().gradients());
  MemoryPlan plan;
  plan.parameters = static_cast<size_t>(model.parameters().count()) * size_of(dtype);
  plan.gradients = plan.parameters;
  plan.moments = 2 * plan.parameters;
  plan.activations = std::max(arena.peak(), plan_evaluation(model, evaluated, training_slice(train, shapes)));
  plan.activation_table = arena.table();
  return plan;
}

Learner::Learner(const ModelConfig& model, const TrainConfig& train, const OptimizerConfig& optimizer,
                 const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated)
    : train_(train),
      optimizer_(optimizer),
      plan_(plan(model, train, shapes, evaluated)),
      model_(model, dtype, train.recompute == "block"),
      persistent_(plan_.parameters + plan_.gradients + plan_.moments + 4 * Arena::alignment),
      activations_(plan_.activations),
      evaluation_tokens_(training_slice(train, shapes)) {
  const Shape flat{model_.parameters().count()};
  const Tensor values = persistent_.take("parameters", dtype, flat);
  const Tensor gradients = persistent_.take("gradients", dtype, flat);
  first_moment_ = persistent_.take("first moments", dtype, flat);
  second_moment_ = persistent_.take("second moments", dtype, flat);
  model_.parameters().bind(values, gradients);
  model_.parameters().initialise(train.seed);
  std::memset(first_moment_.data(), 0, first_moment_.bytes());
  std::memset(second_moment_.data(), 0, second_moment_.bytes());
}

double Learner::gradients(Batch& batch) {
  const auto scored = std::count_if(batch.targets.begin(), batch.targets.end(),
                                    [](int32_t target) { return target != kNoTarget; });
  if (scored == 0)
    fail(ExitCode::data, "a batch of {} tokens has none to score; check the task or the data",
         batch.shape.tokens());
  const Tensor gradients = model_.parameters().gradients();
  std::memset(gradients.data(), 0, gradients.bytes());
  Context ctx{activations_};
  double sum = 0;
  const int64_t rows = micro_rows(train_, batch.shape);
  for (int64_t begin = 0; begin < batch.shape.rows; begin += rows) {
    Arena::Scope scope(activations_);
    const int64_t end = std::min(begin + rows, batch.shape.rows);
    const Tensor losses = activations_.take("losses", dtype, {(end - begin) * batch.shape.length});
    model_.forward_backward(ctx, losses, ids(batch.inputs, batch.shape, begin, end),
                            ids(batch.targets, batch.shape, begin, end), 1 / static_cast<double>(scored),
                            starts_of(batch, begin, end));
    for (int64_t i = 0; i < losses.numel(); ++i) sum += static_cast<double>(losses.as<float>()[i]);
  }
  return sum / static_cast<double>(scored);
}

double Learner::gradient_norm() {
  Context ctx{activations_};
  return global_norm(ctx, model_.parameters().gradients());
}

void Learner::update(double rate, double norm) {
  ++updates_;
  const double scale = train_.clip > 0 && norm > train_.clip ? train_.clip / norm : 1;
  const int64_t decayed = model_.parameters().decayed_count(), count = model_.parameters().count();
  adamw_range(rate, scale, 0, decayed, optimizer_.weight_decay);
  adamw_range(rate, scale, decayed, count, 0);
}

void Learner::adamw_range(double rate, double gradient_scale, int64_t begin, int64_t end, double decay) {
  Context ctx{activations_};
  AdamWSettings settings;
  settings.lr = rate;
  settings.beta1 = optimizer_.betas[0];
  settings.beta2 = optimizer_.betas[1];
  settings.eps = optimizer_.eps;
  settings.weight_decay = decay;
  settings.gradient_scale = gradient_scale;
  settings.step = updates_;
  const Parameters& p = model_.parameters();
  adamw(ctx, p.values().rows(begin, end), first_moment_.rows(begin, end), second_moment_.rows(begin, end),
        p.gradients().rows(begin, end), settings);
}

Evaluation Learner::evaluate(BatchSource& source, int64_t batches) {
  return kata::evaluate(model_, source, batches, evaluation_tokens_, activations_);
}

std::vector<std::pair<std::string, Tensor>> Learner::weights() {
  return model_.parameters().named(model_.parameters().values());
}

std::vector<std::pair<std::string, Tensor>> Learner::moments() {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& [name, tensor] : model_.parameters().named(first_moment_))
    all.emplace_back("first." + name, tensor);
  for (const auto& [name, tensor] : model_.parameters().named(second_moment_))
    all.emplace_back("second." + name, tensor);
  return all;
}

}  // namespace kata
