#include "nn/generator.h"

#include <algorithm>

namespace kata {

namespace {

size_t plan_state(const LanguageModel& model, int64_t capacity, int64_t batch) {
  Arena plan;
  model.take_state(plan, batch, capacity);
  return plan.peak();
}

// The largest of a step and of the last piece of the longest prompt, which sees the most cached tokens.
size_t plan_scratch(LanguageModel& model, int64_t capacity, int64_t batch) {
  Arena memory, scratch;
  DecodeState state = model.take_state(memory, batch, capacity);
  Context ctx{scratch};
  const Tensor logits(nullptr, DType::f32, {batch, model.config().vocab});
  model.step(ctx, logits, Tensor(nullptr, DType::i32, {batch}), state);
  for (int64_t tokens = 1; tokens <= std::min(capacity, Generator::prefill_tokens); ++tokens) {
    state.position = capacity - tokens;
    model.prefill(ctx, logits, Tensor(nullptr, DType::i32, {batch, tokens}), state);
  }
  return scratch.peak();
}

}  // namespace

Generator::Generator(LanguageModel& model, int64_t capacity, int64_t batch)
    : model_(model),
      memory_(plan_state(model, capacity, batch)),
      scratch_(plan_scratch(model, capacity, batch)),
      state_(model.take_state(memory_, batch, capacity)),
      logits_(static_cast<size_t>(batch * model.config().vocab)) {}

const float* Generator::start(const std::vector<std::vector<int32_t>>& prompts) {
  KATA_CHECK(static_cast<int64_t>(prompts.size()) == state_.batch && state_.position == 0,
             "{} prompts for {} rows at position {}", prompts.size(), state_.batch, state_.position);
  size_t longest = 0;
  for (const auto& prompt : prompts) {
    KATA_CHECK(!prompt.empty(), "an empty prompt");
    longest = std::max(longest, prompt.size());
  }
  KATA_CHECK(static_cast<int64_t>(longest) <= state_.capacity, "a prompt of {} tokens, capacity {}", longest,
             state_.capacity);
  // Rows end together; what stands before the shorter ones is not seen by them.
  for (size_t b = 0; b < prompts.size(); ++b)
    state_.first.as<int32_t>()[b] = static_cast<int32_t>(longest - prompts[b].size());
  Context ctx{scratch_};
  const Tensor logits(logits_.data(), DType::f32, {state_.batch, model_.config().vocab});
  std::vector<int32_t> piece;
  for (size_t begin = 0; begin < longest; begin += prefill_tokens) {
    const size_t end = std::min(longest, begin + prefill_tokens);
    piece.clear();
    for (const auto& prompt : prompts)
      for (size_t t = begin; t < end; ++t)
        piece.push_back(t + prompt.size() < longest ? 0 : prompt[t + prompt.size() - longest]);
    for (const int32_t token : piece)
      KATA_CHECK(token >= 0 && token < model_.config().vocab, "token {} of {}", token, model_.config().vocab);
    model_.prefill(ctx, logits,
                   Tensor(piece.data(), DType::i32, {state_.batch, static_cast<int64_t>(end - begin)}),
                   state_);
  }
  return logits_.data();
}

void Generator::reset() {
  clear(state_);
}

const float* Generator::feed(const std::vector<int32_t>& tokens) {
  KATA_CHECK(static_cast<int64_t>(tokens.size()) == state_.batch, "{} tokens for {} rows", tokens.size(),
             state_.batch);
  KATA_CHECK(state_.position < state_.capacity, "token {} of a capacity of {}", state_.position + 1,
             state_.capacity);
  std::vector<int32_t> ids = tokens;
  for (const int32_t token : ids)
    KATA_CHECK(token >= 0 && token < model_.config().vocab, "token {} of {}", token, model_.config().vocab);
  Context ctx{scratch_};
  model_.step(ctx, Tensor(logits_.data(), DType::f32, {state_.batch, model_.config().vocab}),
              Tensor(ids.data(), DType::i32, {state_.batch}), state_);
  return logits_.data();
}

}  // namespace kata
