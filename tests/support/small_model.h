// A small language model in its own memory, for tests of whole models.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"
#include "nn/language_model.h"
#include "support/compare.h"

namespace kata::test {

inline MixerConfig mixer(const std::string& preset) {
  MixerConfig m;
  m.preset = preset;
  m.take_point();
  m.take_defaults();
  return m;
}

inline ModelConfig small_config(const MixerConfig& mixer, int64_t vocab = 19) {
  ModelConfig config;
  config.hidden = 16;
  config.layers = 2;
  config.heads = 2;
  config.head_dim = 8;
  config.kv_heads = 2;
  config.mlp = 12;
  config.vocab = vocab;
  config.mixers = {mixer, mixer};
  return config;
}

// Values, gradients and a planned arena around a model.
class SmallModel {
 public:
  SmallModel(const ModelConfig& config, DType dtype, int64_t batch, int64_t time, bool recompute = false)
      : model(config, dtype, recompute), shape_{batch, time} {
    Arena plan;
    run(plan, {}, {});
    arena_ = Arena(plan.peak());
    planned_ = plan.peak();
    const auto bytes = static_cast<size_t>(model.parameters().count()) * size_of(dtype);
    memory_.resize(2 * bytes);
    const Shape flat{model.parameters().count()};
    model.parameters().bind(Tensor(memory_.data(), dtype, flat), Tensor(memory_.data() + bytes, dtype, flat));
    model.parameters().initialise(7);
  }

  // Mean loss over scored tokens; with gradients, they replace the old ones.
  double loss(std::vector<int32_t>& inputs, std::vector<int32_t>& targets, bool gradients) {
    std::fill(memory_.begin() + static_cast<std::ptrdiff_t>(memory_.size() / 2), memory_.end(), std::byte{0});
    gradients_ = gradients;
    return run(arena_, Tensor(inputs.data(), DType::i32, shape_), Tensor(targets.data(), DType::i32, shape_));
  }
  size_t planned() const { return planned_; }
  size_t used() const { return arena_.peak(); }

  LanguageModel model;

 private:
  double run(Arena& arena, Tensor inputs, Tensor targets) {
    if (!inputs.defined()) inputs = targets = Tensor(nullptr, DType::i32, shape_);
    Context ctx{arena};
    Arena::Scope scope(arena);
    const Tensor losses = arena.take("losses", model.parameters().dtype(), {inputs.numel()});
    double scored = 0, sum = 0;
    if (!arena.planning())
      for (int64_t i = 0; i < targets.numel(); ++i) scored += targets.as<int32_t>()[i] >= 0;
    if (gradients_)
      model.forward_backward(ctx, losses, inputs, targets, 1 / scored);
    else
      model.evaluate(ctx, losses, {}, inputs, targets);
    if (arena.planning()) return 0;
    dispatch_float(losses.dtype(), [&]<class T>() {
      for (int64_t i = 0; i < losses.numel(); ++i) sum += static_cast<double>(losses.as<T>()[i]);
    });
    return sum / scored;
  }

  Shape shape_;
  bool gradients_ = true;  // the plan is of the larger pass
  Arena arena_;
  size_t planned_ = 0;
  std::vector<std::byte> memory_;
};

// batch * time random tokens below vocab; about one target in five is not scored.
inline std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed, bool targets) {
  const Philox random(seed, stream_test);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    ids.push_back(static_cast<int32_t>(random.below(index, static_cast<uint64_t>(vocab))));
    if (targets && random.below(index + 1'000'000, 5) == 0) ids.back() = -1;
  }
  return ids;
}

}  // namespace kata::test
