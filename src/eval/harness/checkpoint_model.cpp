#include "eval/harness/checkpoint_model.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace kata::harness {

int64_t CheckpointModel::vocab() const {
  return loaded_.config().model.vocab;
}

std::vector<Likelihood> CheckpointModel::score(const std::vector<Row>& rows) {
  size_t time = 0;
  for (const Row& row : rows) time = std::max(time, row.inputs.size());
  std::vector<int32_t> inputs(rows.size() * time, 0), targets(rows.size() * time, kNoTarget);
  for (size_t b = 0; b < rows.size(); ++b) {
    const Row& row = rows[b];
    std::copy(row.inputs.begin(), row.inputs.end(), inputs.begin() + static_cast<std::ptrdiff_t>(b * time));
    const size_t first = b * time + row.inputs.size() - row.targets.size();
    std::copy(row.targets.begin(), row.targets.end(), targets.begin() + static_cast<std::ptrdiff_t>(first));
  }
  const Shape shape{static_cast<int64_t>(rows.size()), static_cast<int64_t>(time)};
  const Processor& processor = loaded_.processor();
  Arena plan;
  Context planning(plan, processor);
  const Tensor nothing(nullptr, DType::i32, shape);
  answer(loaded_.model(), planning, nothing, nothing, {}, answers_);
  if (plan.peak() > memory_.capacity()) memory_ = Arena(plan.peak(), processor.memory());
  Context ctx(memory_, processor);
  answer(loaded_.model(), ctx, Tensor(inputs.data(), DType::i32, shape),
         Tensor(targets.data(), DType::i32, shape), {}, answers_);
  std::vector<Likelihood> likelihoods(rows.size());
  for (size_t b = 0; b < rows.size(); ++b)
    for (size_t t = 0; t < rows[b].targets.size(); ++t) {
      const size_t at = b * time + rows[b].inputs.size() - rows[b].targets.size() + t;
      likelihoods[b].sum -= answers_.losses[at];
      likelihoods[b].greedy = likelihoods[b].greedy && answers_.predictions[at] == rows[b].targets[t];
    }
  return likelihoods;
}

// Planning a generator costs more than a short answer: one serves all prompts up to a power of two.
Generator& CheckpointModel::generator_for(int64_t tokens) {
  if (tokens > capacity_) {
    generator_ = nullptr;
    capacity_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens)));
    generator_ = std::make_unique<Generator>(loaded_.model(), capacity_);
  }
  generator_->reset();
  return *generator_;
}

void CheckpointModel::generate(const std::vector<int32_t>& prompt, int64_t max_tokens,
                               const std::function<bool(int32_t)>& more) {
  if (loaded_.processor().device != Device::cpu)
    fail(ExitCode::device, "tasks that generate text run on the CPU only; give --device cpu");
  Generator& generator = generator_for(static_cast<int64_t>(prompt.size()) + max_tokens);
  const float* logits = generator.start({prompt});
  for (int64_t i = 0; i < max_tokens; ++i) {
    // The lowest id of the largest logits.
    const auto token = static_cast<int32_t>(std::max_element(logits, logits + vocab()) - logits);
    if (!more(token) || i + 1 == max_tokens) return;
    logits = generator.feed({token});
  }
}

}  // namespace kata::harness
