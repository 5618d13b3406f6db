#include "train/gpu_step.h"

#include <cstring>

namespace kata {

GpuStep::GpuStep(const Gpu& gpu, Arena& arena, int64_t max_tokens)
    : gpu_(gpu),
      max_tokens_(max_tokens),
      ids_(arena.take("batch ids", DType::i32, {3, max_tokens})),
      loss_sum_(arena.take("loss", DType::f64, {1})),
      gradient_norm_(arena.take("gradient norm", DType::f64, {1})),
      staged_ids_(pinned_memory(ids_.bytes())),
      staged_results_(pinned_memory(2 * sizeof(double))) {}

size_t GpuStep::bytes(int64_t max_tokens) {
  return 3 * static_cast<size_t>(max_tokens) * sizeof(int32_t) + 4 * Arena::alignment;
}

GpuStep::Ids GpuStep::upload(const Batch& batch) {
  const int64_t tokens = batch.shape.tokens();
  KATA_CHECK(tokens <= max_tokens_, "a batch of {} tokens, room for {}", tokens, max_tokens_);
  const auto send = [&](const std::vector<int32_t>& from, int64_t place) {
    const size_t bytes = from.size() * sizeof(int32_t);
    int32_t* staged = static_cast<int32_t*>(staged_ids_.get()) + place * max_tokens_;
    std::memcpy(staged, from.data(), bytes);
    const Tensor to = ids_.rows(place, place + 1).view({max_tokens_}).rows(0, tokens);
    gpu_.upload(to.data(), staged, bytes);
    return to.view({batch.shape.rows, batch.shape.length});
  };
  return {send(batch.inputs, 0), send(batch.targets, 1),
          batch.starts.empty() ? Tensor() : send(batch.starts, 2)};
}

void GpuStep::run(const Kind& kind, const std::function<void()>& body) {
  Recorded& recorded = recorded_[kind];
  if (!recorded.seen) {  // the driver loads kernels at their first launch, which a recording must not do
    body();
    recorded.seen = true;
    return;
  }
  if (!recorded.graph) recorded.graph = std::make_unique<GpuGraph>(gpu_, body);
  recorded.graph->launch();
}

GpuStep::Results GpuStep::results() {
  double* staged = static_cast<double*>(staged_results_.get());
  gpu_.download(staged, loss_sum_.data(), sizeof(double));
  gpu_.download(staged + 1, gradient_norm_.data(), sizeof(double));
  gpu_.synchronise();
  return {staged[0], staged[1]};
}

}  // namespace kata
