#include "nn/generator.h"

namespace kata {

namespace {

size_t plan_state(const LanguageModel& model, int64_t capacity) {
  Arena plan;
  model.take_state(plan, 1, capacity);
  return plan.peak();
}

size_t plan_step(LanguageModel& model, int64_t capacity) {
  Arena memory, scratch;
  DecodeState state = model.take_state(memory, 1, capacity);
  Context ctx{scratch};
  model.step(ctx, Tensor(nullptr, DType::f32, {1, model.config().vocab}), Tensor(nullptr, DType::i32, {1}),
             state);
  return scratch.peak();
}

}  // namespace

Generator::Generator(LanguageModel& model, int64_t capacity)
    : model_(model),
      memory_(plan_state(model, capacity)),
      scratch_(plan_step(model, capacity)),
      state_(model.take_state(memory_, 1, capacity)),
      logits_(static_cast<size_t>(model.config().vocab)) {}

const float* Generator::feed(int32_t token) {
  KATA_CHECK(token >= 0 && token < model_.config().vocab, "token {} of {}", token, model_.config().vocab);
  Context ctx{scratch_};
  model_.step(ctx, Tensor(logits_.data(), DType::f32, {1, model_.config().vocab}),
              Tensor(&token, DType::i32, {1}), state_);
  return logits_.data();
}

}  // namespace kata
