#include "nn/block.h"

#include <cmath>

namespace kata {

namespace {
constexpr double deviation = 0.02;
}

Block::Block(Parameters& parameters, const std::string& name, const ModelConfig& model,
             const MixerConfig& mixer)
    : mixer_norm_(parameters, name + ".mixer_norm", model.hidden, model.norm_eps),
      mixer_(make_mixer(parameters, name + ".mixer", model, mixer)),
      mlp_norm_(parameters, name + ".mlp_norm", model.hidden, model.norm_eps),
      mlp_(parameters, name + ".mlp", model.hidden, model.mlp, deviation,
           deviation / std::sqrt(2.0 * static_cast<double>(model.layers))) {}

void Block::forward(Context& ctx, const Tensor& y, const Tensor& x, const Sequence& sequence) {
  mixer_in_ = ctx.arena.take("block normed input", x.dtype(), x.shape());
  middle_ = ctx.arena.take("block residual", x.dtype(), x.shape());
  mlp_in_ = ctx.arena.take("block normed input", x.dtype(), x.shape());
  mixer_norm_.forward(ctx, mixer_in_, x);
  mixer_->forward(ctx, middle_, mixer_in_, x, sequence);
  mlp_norm_.forward(ctx, mlp_in_, middle_);
  mlp_.forward(ctx, y, mlp_in_, middle_);
}

void Block::backward(Context& ctx, const Tensor& d, const Tensor& x, const Sequence& sequence) {
  Arena::Scope scope(ctx.arena);
  const Tensor dnormed = ctx.arena.take("block normed gradient", x.dtype(), x.shape());
  mlp_.backward(ctx, dnormed, d, mlp_in_);
  mlp_norm_.backward(ctx, d, dnormed, middle_, true);
  mixer_->backward(ctx, dnormed, d, mixer_in_, sequence);
  mixer_norm_.backward(ctx, d, dnormed, x, true);
}

// mix(out, in, residual); nothing is kept.
template <class Mix>
void Block::infer(Context& ctx, const Tensor& y, const Tensor& x, Mix&& mix) {
  Arena::Scope scope(ctx.arena);
  const Tensor normed = ctx.arena.take("block normed input", x.dtype(), x.shape());
  const Tensor middle = ctx.arena.take("block residual", x.dtype(), x.shape());
  mixer_norm_.forward(ctx, normed, x);
  mix(middle, normed, x);
  mlp_norm_.forward(ctx, normed, middle);
  mlp_.forward(ctx, y, normed, middle);
}

void Block::prefill(Context& ctx, const Tensor& y, const Tensor& x, const Sequence& sequence,
                    MixerState& state) {
  infer(ctx, y, x, [&](const Tensor& out, const Tensor& in, const Tensor& residual) {
    mixer_->prefill(ctx, out, in, residual, sequence, state);
  });
}

void Block::step(Context& ctx, const Tensor& y, const Tensor& x, MixerState& state, const StepPlace& place) {
  infer(ctx, y, x, [&](const Tensor& out, const Tensor& in, const Tensor& residual) {
    mixer_->step(ctx, out, in, residual, state, place);
  });
}

}  // namespace kata
