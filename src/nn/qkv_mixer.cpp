#include "nn/qkv_mixer.h"

#include <cmath>

#include "ops/l2norm.h"
#include "ops/short_conv.h"

namespace kata {

namespace {

constexpr double deviation = 0.02;  // of every weight's start (MATH: layers)

RopeSpec rope_spec(const ModelConfig& model, const MixerConfig& mixer) {
  // Every group of psd_sum turns at the same frequencies; Lorentz turns pairs of h and leaves tau.
  const int64_t groups = mixer.map == "psd_sum" ? mixer.groups : 1;
  const int64_t inside = model.head_dim / groups;
  const int64_t rotated = mixer.map == "lorentz" ? (inside - 1) / 2 * 2 : inside;
  return {model.head_dim, groups, rotated, *mixer.rope_base};
}

// [batch * time, heads, width] as [batch, time, heads, width]
Tensor by_sequence(const Tensor& rows, const Sequence& sequence) {
  return rows.split_first(sequence.batch, sequence.time);
}

}  // namespace

QkvMixer::QkvMixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
                   const MixerConfig& mixer)
    : dtype_(parameters.dtype()),
      heads_(model.heads),
      kv_heads_(model.kv_heads),
      head_dim_(model.head_dim),
      qk_norm_(mixer.qk_norm == "rms"  ? QkNorm::rms
               : mixer.qk_norm == "l2" ? QkNorm::l2
                                       : QkNorm::none),
      qkv_(parameters, name + ".qkv", model.hidden, width(), deviation),
      out_(parameters, name + ".out", heads_ * head_dim_, model.hidden,
           deviation / std::sqrt(2.0 * static_cast<double>(model.layers))),
      attention_(make_attention(model, mixer)) {
  if (mixer.conv > 0)
    conv_ = &parameters.add(name + ".conv.weight", {width(), mixer.conv}, Init::uniform(0.5), false);
  if (qk_norm_ == QkNorm::rms) {
    q_norm_.emplace(parameters, name + ".q_norm", head_dim_);
    k_norm_.emplace(parameters, name + ".k_norm", head_dim_);
  }
  if (mixer.rope_base) rope_ = rope_spec(model, mixer);
  if (mixer.read != "softmax") head_norm_.emplace(parameters, name + ".head_norm", head_dim_);
}

QkvMixer::Heads QkvMixer::split(const Tensor& fused) const {
  const int64_t q_end = heads_ * head_dim_, k_end = q_end + kv_heads_ * head_dim_;
  return {fused.columns(0, q_end).split_last(heads_, head_dim_),
          fused.columns(q_end, k_end).split_last(kv_heads_, head_dim_),
          fused.columns(k_end, width()).split_last(kv_heads_, head_dim_)};
}

// q and k into buffers of their own (the norm's backward reads its input); v stays a view.
QkvMixer::Heads QkvMixer::normalise(Context& ctx, const Heads& in) {
  if (qk_norm_ == QkNorm::none) return in;
  const int64_t rows = in.q.dim(0);
  Heads out = in;
  out.q = ctx.arena.take("normed q", dtype_, in.q.shape());
  out.k = ctx.arena.take("normed k", dtype_, in.k.shape());
  if (qk_norm_ == QkNorm::rms) {
    q_norm_->forward(ctx, out.q, in.q);
    k_norm_->forward(ctx, out.k, in.k);
  } else {
    q_rnorm_ = ctx.arena.take("norm scales", dtype_, {rows * heads_});
    k_rnorm_ = ctx.arena.take("norm scales", dtype_, {rows * kv_heads_});
    l2norm_forward(ctx, out.q, q_rnorm_, in.q, Norm::eps);
    l2norm_forward(ctx, out.k, k_rnorm_, in.k, Norm::eps);
  }
  return out;
}

// In place: gradient.q and gradient.k are laid out as in.q and in.k.
void QkvMixer::normalise_backward(Context& ctx, const Heads& gradient, const Heads& in) const {
  if (qk_norm_ == QkNorm::rms) {
    q_norm_->backward(ctx, gradient.q, gradient.q, in.q, false);
    k_norm_->backward(ctx, gradient.k, gradient.k, in.k, false);
  } else if (qk_norm_ == QkNorm::l2) {
    l2norm_backward(ctx, gradient.q, gradient.q, in.q, q_rnorm_, false);
    l2norm_backward(ctx, gradient.k, gradient.k, in.k, k_rnorm_, false);
  }
}

void QkvMixer::take_rope_table(Context& ctx, int64_t time, int64_t position, DType dtype) {
  if (!rope_) return;
  rope_table_ = ctx.arena.take("rope table", dtype, {time, rope_->rotated / 2, 2});
  rope_table(ctx, rope_table_, position, *rope_);
}

void QkvMixer::rotate(Context& ctx, const Heads& heads, const Sequence& sequence, bool inverse) const {
  if (!rope_) return;
  for (const Tensor& x : {heads.q, heads.k}) {
    const Tensor view = by_sequence(x, sequence);
    if (inverse)
      rope_backward(ctx, view, rope_table_, *rope_);
    else
      rope_forward(ctx, view, rope_table_, *rope_);
  }
}

// The output projection's input: o, head-normalised except for softmax. [rows, heads * head_dim]
Tensor QkvMixer::head_output(Context& ctx, const Tensor& o) {
  Tensor out = o;
  if (head_norm_) {
    out = ctx.arena.take("normed read", dtype_, o.shape());
    head_norm_->forward(ctx, out, o);
  }
  return out.view({o.dim(0), heads_ * head_dim_});
}

void QkvMixer::forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       const Sequence& sequence) {
  const Shape fused{sequence.tokens(), width()}, by_time{sequence.batch, sequence.time, width()};
  projected_ = ctx.arena.take("qkv", dtype_, fused);
  qkv_.forward(ctx, projected_, x);
  convolved_ = projected_;
  if (conv_) {
    convolved_ = ctx.arena.take("convolved qkv", dtype_, fused);
    short_conv_forward(ctx, convolved_.view(by_time), projected_.view(by_time), conv_->value);
  }
  ready_ = normalise(ctx, split(convolved_));
  take_rope_table(ctx, sequence.time, 0, dtype_);
  rotate(ctx, ready_, sequence, false);
  read_ = ctx.arena.take("attention read", dtype_, {sequence.tokens(), heads_, head_dim_});
  attention_->forward(ctx, by_sequence(read_, sequence), by_sequence(ready_.q, sequence),
                      by_sequence(ready_.k, sequence), by_sequence(ready_.v, sequence));
  normed_read_ = head_output(ctx, read_);
  out_.forward(ctx, y, normed_read_, residual);
}

void QkvMixer::backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                        const Sequence& sequence) {
  Arena::Scope scope(ctx.arena);
  const Shape fused{sequence.tokens(), width()}, by_time{sequence.batch, sequence.time, width()};
  const Tensor dread = ctx.arena.take("attention read gradient", dtype_, read_.shape());
  out_.backward(ctx, dread.view(normed_read_.shape()), dy, normed_read_);
  if (head_norm_) head_norm_->backward(ctx, dread, dread, read_, false);

  Tensor dfused = ctx.arena.take("qkv gradient", dtype_, fused);
  const Heads gradient = split(dfused);
  attention_->backward(ctx, by_sequence(gradient.q, sequence), by_sequence(gradient.k, sequence),
                       by_sequence(gradient.v, sequence), by_sequence(dread, sequence),
                       by_sequence(ready_.q, sequence), by_sequence(ready_.k, sequence),
                       by_sequence(ready_.v, sequence), by_sequence(read_, sequence));
  rotate(ctx, gradient, sequence, true);
  normalise_backward(ctx, gradient, split(convolved_));
  if (conv_) {
    const Tensor dprojected = ctx.arena.take("qkv gradient before convolution", dtype_, fused);
    short_conv_backward(ctx, dprojected.view(by_time), conv_->gradient, dfused.view(by_time),
                        projected_.view(by_time), conv_->value);
    dfused = dprojected;
  }
  qkv_.backward(ctx, dx, dfused, x);
}

MixerState QkvMixer::take_state(Arena& arena, int64_t batch, int64_t capacity) const {
  MixerState state;
  if (conv_) state.window = arena.take("convolution window", dtype_, {batch, conv_->shape[1] - 1, width()});
  attention_->take_state(arena, dtype_, state, batch, capacity);
  return state;
}

void QkvMixer::step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, MixerState& state,
                    int64_t position) {
  const int64_t batch = x.dim(0);
  Tensor fused = ctx.arena.take("qkv", dtype_, {batch, width()});
  qkv_.forward(ctx, fused, x);
  if (conv_) {
    const Tensor convolved = ctx.arena.take("convolved qkv", dtype_, {batch, width()});
    short_conv_step(ctx, convolved, fused, state.window, conv_->value);
    fused = convolved;
  }
  const Heads heads = normalise(ctx, split(fused));
  take_rope_table(ctx, 1, position, dtype_);
  rotate(ctx, heads, {batch, 1}, false);
  const Tensor o = ctx.arena.take("attention read", dtype_, {batch, heads_, head_dim_});
  attention_->step(ctx, o, heads.q, heads.k, heads.v, state, position);
  out_.forward(ctx, y, head_output(ctx, o), residual);
}

std::unique_ptr<Mixer> make_mixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
                                  const MixerConfig& mixer) {
  return std::make_unique<QkvMixer>(parameters, name, model, mixer);
}

}  // namespace kata
