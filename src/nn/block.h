// One decoder block: x + mixer(rmsnorm(x)), then x + mlp(rmsnorm(x)).
#pragma once

#include <memory>

#include "nn/mixer.h"
#include "nn/mlp.h"
#include "nn/norm.h"

namespace kata {

class Block {
 public:
  Block(Parameters& parameters, const std::string& name, const ModelConfig& model, const MixerConfig& mixer);

  // y, x: [tokens, hidden]. What backward needs stays in the caller's arena scope.
  void forward(Context& ctx, const Tensor& y, const Tensor& x, const Sequence& sequence);
  // d: gradient of y on entry, of x on return.
  void backward(Context& ctx, const Tensor& d, const Tensor& x, const Sequence& sequence);
  MixerState take_state(Arena& arena, int64_t batch, int64_t capacity) const {
    return mixer_->take_state(arena, batch, capacity);
  }
  // As forward, going on from the state.
  void prefill(Context& ctx, const Tensor& y, const Tensor& x, const Sequence& sequence, MixerState& state);
  // y, x: [batch, hidden], one token each.
  void step(Context& ctx, const Tensor& y, const Tensor& x, MixerState& state, const StepPlace& place);
  int64_t state_entries(int64_t length) const { return mixer_->state_entries(length); }
  int64_t operations(int64_t length) const { return mixer_->operations(length) + mlp_.operations(); }

 private:
  template <class Mix>
  void infer(Context& ctx, const Tensor& y, const Tensor& x, Mix&& mix);

  Norm mixer_norm_;
  std::unique_ptr<Mixer> mixer_;
  Norm mlp_norm_;
  Mlp mlp_;
  Tensor mixer_in_, middle_, mlp_in_;  // kept for backward
};

}  // namespace kata
