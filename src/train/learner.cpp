#include "train/learner.h"

#include <algorithm>
#include <cstring>

#include "base/bf16.h"
#include "base/parallel.h"
#include "ops/adamw.h"
#include "ops/dispatch.h"
#include "ops/global_norm.h"
#include "train/answers.h"

namespace kata {

namespace {

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

int64_t largest_batch(const std::vector<BatchShape>& shapes) {
  int64_t tokens = 0;
  for (const BatchShape& s : shapes) tokens = std::max(tokens, s.tokens());
  return tokens;
}

// Tokens of the largest training slice: evaluation keeps to it, so that it never needs more memory.
int64_t training_slice(const TrainConfig& train, const std::vector<BatchShape>& shapes) {
  int64_t tokens = 1;
  for (const BatchShape& s : shapes) tokens = std::max(tokens, micro_rows(train, s) * s.length);
  return tokens;
}

void add_scores(Evaluation& sums, const Answers& answers, const Tensor& targets) {
  const int32_t* target = targets.as<int32_t>();
  for (int64_t row = 0; row < targets.dim(0); ++row) {
    int64_t scored = 0, correct = 0;
    for (int64_t i = row * targets.dim(1); i < (row + 1) * targets.dim(1); ++i) {
      if (target[i] == kNoTarget) continue;
      sums.loss_sum += answers.losses[static_cast<size_t>(i)];
      correct += answers.predictions[static_cast<size_t>(i)] == target[i];
      ++scored;
    }
    if (scored == 0) continue;
    sums.tokens += scored;
    sums.correct += correct;
    sums.example_accuracy_sum += static_cast<double>(correct) / static_cast<double>(scored);
    ++sums.examples;
  }
}

// No slice of so many rows scores more tokens; rounded up, so that few kinds of steps are recorded.
int64_t scored_bound(const Batch& batch, int64_t rows) {
  constexpr int64_t step = 1024;
  int64_t most = 0;
  for (int64_t begin = 0; begin < batch.shape.rows; begin += rows) {
    const auto first = batch.targets.begin() + begin * batch.shape.length;
    const auto last = batch.targets.begin() + std::min(begin + rows, batch.shape.rows) * batch.shape.length;
    most = std::max<int64_t>(most, std::count_if(first, last, [](int32_t t) { return t != kNoTarget; }));
  }
  return std::min(ceil_div(most, step) * step, std::min(rows, batch.shape.rows) * batch.shape.length);
}

DType activation_dtype(const TrainConfig& train) {
  if (train.precision == "fp64") return DType::f64;
  return train.precision == "bf16" ? DType::bf16 : DType::f32;
}

}  // namespace

std::string MemoryPlan::text() const {
  return fmt::format(
      "memory: {} = parameters {} + gradients {} + moments {} + activations {}{}\nactivations at the "
      "peak:\n{}",
      human_bytes(total()), human_bytes(parameters), human_bytes(gradients), human_bytes(moments),
      human_bytes(activations), batch > 0 ? " + batch and workspace " + human_bytes(batch) : std::string(),
      activation_table);
}

size_t plan_evaluation(LanguageModel& model, const std::vector<BatchShape>& shapes, int64_t max_tokens,
                       const Processor& processor) {
  Arena arena;
  Context ctx(arena, processor);
  Answers unused;
  for (const BatchShape& shape : shapes) {
    const int64_t rows = slice_rows(shape, max_tokens);
    for (const int64_t r : {rows, shape.rows % rows}) {  // the last slice may be smaller
      if (r == 0) continue;
      const Tensor ids = null_ids(r, shape.length);
      answer(model, ctx, ids, ids, {}, unused);
    }
  }
  return arena.peak();
}

Evaluation evaluate(LanguageModel& model, BatchSource& source, int64_t batches, int64_t max_tokens,
                    Context& ctx) {
  Evaluation sums;
  Batch batch;
  Answers answers;
  const int64_t epoch = source.steps_per_epoch();
  for (int64_t step = 0; step < (batches > 0 ? std::min(batches, epoch) : epoch); ++step) {
    source.fill(step, batch);
    const int64_t rows = slice_rows(batch.shape, max_tokens);
    for (int64_t begin = 0; begin < batch.shape.rows; begin += rows) {
      const int64_t end = std::min(begin + rows, batch.shape.rows);
      const Tensor targets = ids(batch.targets, batch.shape, begin, end);
      answer(model, ctx, ids(batch.inputs, batch.shape, begin, end), targets, starts_of(batch, begin, end),
             answers);
      add_scores(sums, answers, targets);
    }
  }
  return sums;
}

MemoryPlan Learner::plan(const ModelConfig& config, const TrainConfig& train,
                         const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated,
                         const Processor& processor) {
  LanguageModel model(config, activation_dtype(train), train.recompute == "block");
  const Parameters& parameters = model.parameters();
  Arena arena;
  Context ctx(arena, processor);
  for (const BatchShape& shape : shapes) {
    Arena::Scope scope(arena);
    const Tensor losses = arena.take("losses", parameters.master_dtype(), {shape.tokens()});
    const int64_t rows = micro_rows(train, shape);
    for (const int64_t r : {rows, shape.rows % rows})  // the last slice may be smaller
      if (r > 0)
        model.forward_backward(ctx, losses.rows(0, r * shape.length), null_ids(r, shape.length),
                               null_ids(r, shape.length), 1);
    if (processor.device == Device::cuda) {
      const Tensor number(nullptr, DType::f64, {1});
      sum_to(ctx, number, losses);
      global_norm_to(ctx, number, parameters.gradients());
    }
  }
  if (processor.device == Device::cpu) global_norm(ctx, parameters.gradients());
  const auto count = static_cast<size_t>(parameters.count());
  MemoryPlan plan;
  plan.gradients = count * size_of(parameters.master_dtype());
  plan.parameters = plan.gradients;
  plan.moments = 2 * plan.gradients;
  if (parameters.has_copy())
    plan.parameters += static_cast<size_t>(parameters.decayed_count()) * size_of(parameters.dtype());
  if (processor.device == Device::cuda)
    plan.batch = GpuStep::bytes(largest_batch(shapes)) + Gpu::workspace_bytes;
  plan.activations =
      std::max(arena.peak(), plan_evaluation(model, evaluated, training_slice(train, shapes), processor));
  plan.activation_table = arena.table();
  return plan;
}

Learner::Learner(const ModelConfig& model, const TrainConfig& train, const OptimizerConfig& optimizer,
                 const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated,
                 const Processor& processor)
    : train_(train),
      optimizer_(optimizer),
      processor_(processor),
      plan_(plan(model, train, shapes, evaluated, processor)),
      model_(model, activation_dtype(train), train.recompute == "block"),
      persistent_(plan_.parameters + plan_.gradients + plan_.moments + plan_.batch + 5 * Arena::alignment,
                  processor.memory()),
      activations_(plan_.activations, processor.memory()),
      evaluation_tokens_(training_slice(train, shapes)) {
  Parameters& parameters = model_.parameters();
  const Shape flat{parameters.count()};
  const DType dtype = parameters.master_dtype();
  const Tensor values = persistent_.take("parameters", dtype, flat);
  const Tensor gradients = persistent_.take("gradients", dtype, flat);
  first_moment_ = persistent_.take("first moments", dtype, flat);
  second_moment_ = persistent_.take("second moments", dtype, flat);
  Tensor copy;
  if (parameters.has_copy())
    copy = persistent_.take("parameters in 16 bits", parameters.dtype(), {parameters.decayed_count()});
  parameters.bind(values, gradients, copy);
  if (!on_gpu()) {
    parameters.initialise(train.seed);
    std::memset(first_moment_.data(), 0, first_moment_.bytes());
    std::memset(second_moment_.data(), 0, second_moment_.bytes());
    return;
  }
  gpu_step_ = std::make_unique<GpuStep>(*processor_.gpu, persistent_, largest_batch(shapes));
  {
    Arena::Scope scope(host_weights_);
    parameters.initialise(train.seed, host_copy(host_weights_, values));
  }
  processor_.gpu->zero(first_moment_.data(), first_moment_.bytes());
  processor_.gpu->zero(second_moment_.data(), second_moment_.bytes());
  take_over();
}

// losses and, added to the zeroed buffer, gradients of a batch, in slices of train.micro_batch rows.
void Learner::compute(const Tensor& inputs, const Tensor& targets, const Tensor& starts, double scale,
                      const Tensor& losses, int64_t scored_bound) {
  Context ctx = context();
  const int64_t rows = inputs.dim(0), length = inputs.dim(1);
  const int64_t slice = micro_rows(train_, {rows, length});
  for (int64_t begin = 0; begin < rows; begin += slice) {
    const int64_t end = std::min(begin + slice, rows);
    model_.forward_backward(ctx, losses.rows(begin * length, end * length), inputs.rows(begin, end),
                            targets.rows(begin, end), scale,
                            starts.defined() ? starts.rows(begin, end) : starts, scored_bound);
  }
}

void Learner::start(Batch& batch) {
  scored_ = std::count_if(batch.targets.begin(), batch.targets.end(),
                          [](int32_t target) { return target != kNoTarget; });
  if (scored_ == 0)
    fail(ExitCode::data, "a batch of {} tokens has none to score; check the task or the data",
         batch.shape.tokens());
  const Tensor gradients = model_.parameters().gradients();
  const Shape tokens{batch.shape.tokens()};
  const DType dtype = model_.parameters().master_dtype();
  if (on_gpu()) {
    const GpuStep::Ids ids = gpu_step_->upload(batch);
    const int64_t bound = scored_bound(batch, micro_rows(train_, batch.shape));
    gpu_step_->run({batch.shape.rows, batch.shape.length, ids.starts.defined(), bound}, [&] {
      Arena::Scope scope(activations_);
      Context ctx = context();
      const Tensor losses = activations_.take("losses", dtype, tokens);
      processor_.gpu->zero(gradients.data(), gradients.bytes());
      // update() divides by the scored tokens
      compute(ids.inputs, ids.targets, ids.starts, 1, losses, bound);
      sum_to(ctx, gpu_step_->loss_sum(), losses);
      global_norm_to(ctx, gpu_step_->gradient_norm(), gradients);
    });
    return;
  }
  Arena::Scope scope(activations_);
  const Tensor losses = activations_.take("losses", dtype, tokens);
  std::memset(gradients.data(), 0, gradients.bytes());
  compute(ids(batch.inputs, batch.shape, 0, batch.shape.rows),
          ids(batch.targets, batch.shape, 0, batch.shape.rows), starts_of(batch, 0, batch.shape.rows),
          1 / static_cast<double>(scored_), losses, -1);
  loss_sum_ = 0;
  dispatch_float(dtype, [&]<class T>() {
    for (int64_t i = 0; i < losses.numel(); ++i) loss_sum_ += static_cast<double>(losses.as<T>()[i]);
  });
}

double Learner::finish() {
  if (on_gpu()) {
    const GpuStep::Results results = gpu_step_->results();
    loss_sum_ = results.loss_sum;
    gpu_norm_ = results.gradient_norm / static_cast<double>(scored_);
  }
  return loss_sum_ / static_cast<double>(scored_);
}

double Learner::gradients(Batch& batch) {
  start(batch);
  return finish();
}

double Learner::gradient_norm() {
  if (on_gpu()) return gpu_norm_;
  Context ctx = context();
  return global_norm(ctx, model_.parameters().gradients());
}

void Learner::update(double rate, double norm) {
  ++updates_;
  double scale = train_.clip > 0 && norm > train_.clip ? train_.clip / norm : 1;
  if (on_gpu()) scale /= static_cast<double>(std::max<int64_t>(scored_, 1));
  const int64_t decayed = model_.parameters().decayed_count(), count = model_.parameters().count();
  adamw_range(rate, scale, 0, decayed, optimizer_.weight_decay);
  adamw_range(rate, scale, decayed, count, 0);
}

void Learner::adamw_range(double rate, double gradient_scale, int64_t begin, int64_t end, double decay) {
  Context ctx = context();
  AdamWSettings settings;
  settings.lr = rate;
  settings.beta1 = optimizer_.betas[0];
  settings.beta2 = optimizer_.betas[1];
  settings.eps = optimizer_.eps;
  settings.weight_decay = decay;
  settings.gradient_scale = gradient_scale;
  settings.step = updates_;
  const Parameters& p = model_.parameters();
  const Tensor copy = begin == 0 && p.has_copy() ? p.copy() : Tensor();
  adamw(ctx, p.values().rows(begin, end), first_moment_.rows(begin, end), second_moment_.rows(begin, end),
        p.gradients().rows(begin, end), settings, copy);
}

Evaluation Learner::evaluate(BatchSource& source, int64_t batches) {
  Context ctx = context();
  return kata::evaluate(model_, source, batches, evaluation_tokens_, ctx);
}

// Room on the host for a buffer of the GPU; on the CPU the buffer itself.
Tensor Learner::host_copy(Arena& memory, const Tensor& flat) const {
  if (!on_gpu()) return flat;
  if (memory.planning()) memory = Arena(2 * (flat.bytes() + Arena::alignment));
  return memory.take("host copy", flat.dtype(), flat.shape());
}

void Learner::take_over() {
  if (!on_gpu()) return;
  const Gpu& gpu = *processor_.gpu;
  const Parameters& parameters = model_.parameters();
  const auto send = [&](Arena& memory, const Tensor& to) {
    const Tensor from = host_copy(memory, to);
    gpu.upload(to.data(), from.data(), from.bytes());
    return from;
  };
  if (!host_weights_.planning()) {
    Arena::Scope scope(host_weights_);
    const float* values = send(host_weights_, parameters.values()).as<float>();
    const std::vector<bf16> copy =
        rounded_to_bf16(values, parameters.has_copy() ? parameters.decayed_count() : 0);
    if (!copy.empty()) gpu.upload(parameters.copy().data(), copy.data(), copy.size() * sizeof(bf16));
    gpu.synchronise();
  }
  if (!host_moments_.planning()) {
    Arena::Scope scope(host_moments_);
    send(host_moments_, first_moment_);
    send(host_moments_, second_moment_);
    gpu.synchronise();
  }
}

std::vector<std::pair<std::string, Tensor>> Learner::weights() {
  Arena::Scope scope(host_weights_);
  const Tensor host = host_copy(host_weights_, model_.parameters().values());
  if (on_gpu()) {
    processor_.gpu->download(host.data(), model_.parameters().values().data(), host.bytes());
    processor_.gpu->synchronise();
  }
  return model_.parameters().named(host);
}

std::vector<std::pair<std::string, Tensor>> Learner::moments() {
  Arena::Scope scope(host_moments_);
  const Tensor first = host_copy(host_moments_, first_moment_);
  const Tensor second = host_copy(host_moments_, second_moment_);
  if (on_gpu()) {
    processor_.gpu->download(first.data(), first_moment_.data(), first.bytes());
    processor_.gpu->download(second.data(), second_moment_.data(), second.bytes());
    processor_.gpu->synchronise();
  }
  std::vector<std::pair<std::string, Tensor>> all;
  for (const auto& [name, tensor] : model_.parameters().named(first))
    all.emplace_back("first." + name, tensor);
  for (const auto& [name, tensor] : model_.parameters().named(second))
    all.emplace_back("second." + name, tensor);
  return all;
}

}  // namespace kata
