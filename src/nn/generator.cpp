#include "nn/generator.h"

#include <algorithm>

namespace kata {

Generator::Held Generator::take(const LanguageModel& model, Arena& arena, int64_t capacity, int64_t batch,
                                const Processor& processor) {
  return {model.take_state(arena, batch, capacity, processor),
          arena.take("tokens", DType::i32, {batch * prefill_tokens}),
          arena.take("logits", DType::f32, {batch, model.config().vocab})};
}

size_t Generator::plan_held(const LanguageModel& model, int64_t capacity, int64_t batch,
                            const Processor& processor) {
  Arena plan;
  take(model, plan, capacity, batch, processor);
  return plan.peak();
}

// The largest of a step and of the last piece of the longest prompt, which sees the most cached tokens.
size_t Generator::plan_scratch(LanguageModel& model, int64_t capacity, int64_t batch,
                               const Processor& processor) {
  Arena memory, scratch;
  Held held = take(model, memory, capacity, batch, processor);
  Context ctx{scratch, processor};
  model.step(ctx, held.logits, held.tokens.rows(0, batch), held.state);
  for (int64_t time = 1; time <= std::min(capacity, prefill_tokens); ++time) {
    held.state.position = capacity - time;
    model.prefill(ctx, held.logits, held.tokens.rows(0, batch * time).view({batch, time}), held.state);
  }
  return scratch.peak();
}

Generator::Generator(LanguageModel& model, int64_t capacity, int64_t batch, const Processor& processor)
    : model_(model),
      processor_(processor),
      memory_(plan_held(model, capacity, batch, processor), processor.memory()),
      scratch_(plan_scratch(model, capacity, batch, processor), processor.memory()),
      held_(take(model, memory_, capacity, batch, processor)) {
  if (on_gpu()) host_logits_ = pinned_memory(held_.logits.bytes());
}

Tensor Generator::send_ids(int64_t time) {
  for (const int32_t id : ids_)
    KATA_CHECK(id >= 0 && id < model_.config().vocab, "token {} of {}", id, model_.config().vocab);
  const Tensor to = held_.tokens.rows(0, held_.state.batch * time);
  if (on_gpu())
    processor_.gpu->upload(to.data(), ids_.data(), to.bytes());
  else
    std::copy(ids_.begin(), ids_.end(), to.as<int32_t>());
  return to.view({held_.state.batch, time});
}

const float* Generator::results() {
  if (!on_gpu()) return held_.logits.as<float>();
  processor_.gpu->download(host_logits_.get(), held_.logits.data(), held_.logits.bytes());
  processor_.gpu->synchronise();
  return static_cast<const float*>(host_logits_.get());
}

const float* Generator::start(const std::vector<std::vector<int32_t>>& prompts) {
  DecodeState& state = held_.state;
  KATA_CHECK(static_cast<int64_t>(prompts.size()) == state.batch && state.position == 0,
             "{} prompts for {} rows at position {}", prompts.size(), state.batch, state.position);
  size_t longest = 0;
  for (const auto& prompt : prompts) {
    KATA_CHECK(!prompt.empty(), "an empty prompt");
    longest = std::max(longest, prompt.size());
  }
  KATA_CHECK(static_cast<int64_t>(longest) <= state.capacity, "a prompt of {} tokens, capacity {}", longest,
             state.capacity);
  // Rows end together; what stands before the shorter ones is not seen by them.
  std::vector<int32_t> first;
  for (const auto& prompt : prompts) first.push_back(static_cast<int32_t>(longest - prompt.size()));
  set_first(state, std::move(first));
  Context ctx{scratch_, processor_};
  for (size_t begin = 0; begin < longest; begin += prefill_tokens) {
    const size_t end = std::min(longest, begin + prefill_tokens);
    if (on_gpu()) processor_.gpu->synchronise();  // the ids of the piece before have been read
    ids_.clear();
    for (const auto& prompt : prompts)
      for (size_t t = begin; t < end; ++t)
        ids_.push_back(t + prompt.size() < longest ? 0 : prompt[t + prompt.size() - longest]);
    model_.prefill(ctx, held_.logits, send_ids(static_cast<int64_t>(end - begin)), state);
  }
  return results();
}

void Generator::reset() {
  clear(held_.state);
}

const float* Generator::feed(const std::vector<int32_t>& tokens) {
  DecodeState& state = held_.state;
  KATA_CHECK(static_cast<int64_t>(tokens.size()) == state.batch, "{} tokens for {} rows", tokens.size(),
             state.batch);
  KATA_CHECK(state.position < state.capacity, "token {} of a capacity of {}", state.position + 1,
             state.capacity);
  ids_ = tokens;
  const Tensor ids = send_ids(1).view({state.batch});
  Context ctx{scratch_, processor_};
  model_.send_places(ctx, state);
  const auto step = [&] { model_.step_at_places(ctx, held_.logits, ids, state); };
  if (!on_gpu() || !stepped_) {  // the driver loads kernels at their first launch, which a recording must not
    step();
    stepped_ = true;
  } else {
    if (!step_) step_ = std::make_unique<GpuGraph>(*processor_.gpu, step);
    step_->launch();
  }
  ++state.position;
  return results();
}

}  // namespace kata
