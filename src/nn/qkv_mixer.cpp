#include "nn/qkv_mixer.h"

#include <cmath>

#include "ops/l2norm.h"
#include "ops/short_conv.h"
#include "ops/silu_gate.h"
#include "ops/unit_feature.h"

namespace kata {

namespace {

constexpr double deviation = 0.02;  // of every weight's start (MATH: layers)
constexpr double l2_eps = 1e-6;     // of the l2 norm of q and k

RopeSpec rope_spec(const ModelConfig& model, const MixerConfig& mixer) {
  // Every group of psd_sum turns at the same frequencies, both pairs of a quaternion too; Lorentz turns pairs
  // of h and leaves tau.
  const int64_t groups = mixer.map == "psd_sum" ? mixer.groups : 1;
  const int64_t inside = model.head_dim / groups;
  const int64_t rotated = mixer.map == "lorentz" ? (inside - 1) / 2 * 2 : inside;
  return {model.head_dim, groups, rotated, *mixer.rope_base, mixer.map == "quaternionic" ? 2 : 1};
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
      out_(parameters, name + ".out", hidden(), model.hidden,
           deviation / std::sqrt(2.0 * static_cast<double>(model.layers))),
      token_gates_(parameters, name, model.hidden, model.kv_heads, mixer),
      attention_(make_attention({model.heads, model.kv_heads, model.head_dim, model.head_dim}, mixer)) {
  if (mixer.conv > 0)
    conv_ = &parameters.add(name + ".conv.weight", {width(), mixer.conv}, Init::uniform(0.5), false);
  if (qk_norm_ == QkNorm::rms) {
    q_norm_.emplace(parameters, name + ".q_norm", head_dim_, model.norm_eps);
    k_norm_.emplace(parameters, name + ".k_norm", head_dim_, model.norm_eps);
  }
  if (mixer.rope_base) rope_ = rope_spec(model, mixer);
  if (!mixer.softmax()) head_norm_.emplace(parameters, name + ".head_norm", head_dim_, model.norm_eps);
  if (mixer.output_gate) output_gate_.emplace(parameters, name + ".gate", model.hidden, hidden(), deviation);
  if (mixer.delta()) {
    unit_map_ = feature_map(mixer, head_dim_);
    q_scale_ = k_scale_ = std::sqrt(mixer.delta_scale);
    // DeltaNet scales q by d^-1/2; the head norm takes it away again but for its epsilon.
    if (mixer.map == "identity") q_scale_ /= std::sqrt(static_cast<double>(head_dim_));
  }
}

AttentionInputs QkvMixer::split(const Tensor& fused) const {
  const int64_t q_end = heads_ * head_dim_, k_end = q_end + kv_heads_ * head_dim_;
  return {fused.columns(0, q_end).split_last(heads_, head_dim_),
          fused.columns(q_end, k_end).split_last(kv_heads_, head_dim_),
          fused.columns(k_end, width()).split_last(kv_heads_, head_dim_)};
}

// q and k into buffers of their own (the norm's backward reads its input); v stays a view. Where rotate()
// norms as well, it fills them.
AttentionInputs QkvMixer::normalise(Context& ctx, const AttentionInputs& in) {
  if (qk_norm_ == QkNorm::none) return in;
  const int64_t rows = in.q.dim(0);
  AttentionInputs out = in;
  if (norm_in_rotation()) {
    const int64_t heads = heads_ + kv_heads_;
    turned_rows_ = ctx.arena.take("normed q and k", dtype_, {rows, heads * head_dim_});
    qk_rstd_ = ctx.arena.take("norm scales", wide(dtype_), {rows * heads});
    out.q = turned_rows_.columns(0, hidden()).split_last(heads_, head_dim_);
    out.k = turned_rows_.columns(hidden(), heads * head_dim_).split_last(kv_heads_, head_dim_);
    return out;
  }
  out.q = ctx.arena.take("normed q", dtype_, in.q.shape());
  out.k = ctx.arena.take("normed k", dtype_, in.k.shape());
  if (qk_norm_ == QkNorm::rms) {
    q_norm_->forward(ctx, out.q, in.q);
    k_norm_->forward(ctx, out.k, in.k);
  } else {
    q_rnorm_ = ctx.arena.take("norm scales", wide(dtype_), {rows * heads_});
    k_rnorm_ = ctx.arena.take("norm scales", wide(dtype_), {rows * kv_heads_});
    l2norm_forward(ctx, out.q, q_rnorm_, in.q, l2_eps);
    l2norm_forward(ctx, out.k, k_rnorm_, in.k, l2_eps);
  }
  return out;
}

// In place: gradient.q and gradient.k are laid out as in.q and in.k.
void QkvMixer::normalise_backward(Context& ctx, const AttentionInputs& gradient,
                                  const AttentionInputs& in) const {
  if (qk_norm_ == QkNorm::rms) {
    q_norm_->backward(ctx, gradient.q, gradient.q, in.q, false);
    k_norm_->backward(ctx, gradient.k, gradient.k, in.k, false);
  } else if (qk_norm_ == QkNorm::l2) {
    l2norm_backward(ctx, gradient.q, gradient.q, in.q, q_rnorm_, false);
    l2norm_backward(ctx, gradient.k, gradient.k, in.k, k_rnorm_, false);
  }
}

// The delta rule reads rows whose features have length one.
AttentionInputs QkvMixer::unit_rows(Context& ctx, const AttentionInputs& in) const {
  if (!unit_map_) return in;
  AttentionInputs out = in;
  out.q = ctx.arena.take("unit q", dtype_, in.q.shape());
  out.k = ctx.arena.take("unit k", dtype_, in.k.shape());
  unit_feature_forward(ctx, out.q, in.q, q_scale_, *unit_map_);
  unit_feature_forward(ctx, out.k, in.k, k_scale_, *unit_map_);
  return out;
}

void QkvMixer::take_rope_table(Context& ctx, int64_t rows, int64_t position) {
  if (!rope_) return;
  rope_table_ = ctx.arena.take("rope table", wide(dtype_), {rows, rope_->rotated / 2, 2});
  rope_table(ctx, rope_table_, position, *rope_);
}

void QkvMixer::rotate(Context& ctx, const AttentionInputs& in, const Sequence& sequence, bool inverse) const {
  if (!rope_) return;
  if (norm_in_rotation()) {
    qk_norm_rope_forward(ctx, queries_and_keys(turned_rows_, sequence), qk_rstd_,
                         queries_and_keys(convolved_, sequence), norm_and_rotation(sequence), q_norm_->eps());
    return;
  }
  for (const Tensor& x : {in.q, in.k}) {
    const Tensor view = by_sequence(x, sequence);
    if (inverse)
      rope_backward(ctx, view, rope_table_, *rope_, sequence.starts);
    else
      rope_forward(ctx, view, rope_table_, *rope_, sequence.starts);
  }
}

QkNormRope QkvMixer::norm_and_rotation(const Sequence& sequence) const {
  return {heads_, q_norm_->weight().value, k_norm_->weight().value, rope_table_, *rope_, sequence.starts};
}

// fused: rows that begin with q, then k.
Tensor QkvMixer::queries_and_keys(const Tensor& fused, const Sequence& sequence) const {
  const int64_t heads = heads_ + kv_heads_;
  return by_sequence(fused.columns(0, heads * head_dim_).split_last(heads, head_dim_), sequence);
}

// Rows that each have a position of their own: they stand as the time of one sequence, so that the table is
// no longer than they are, however far on the positions are.
void QkvMixer::rotate_rows(Context& ctx, const AttentionInputs& in, const Tensor& positions) {
  if (!rope_) return;
  const int64_t rows = in.q.dim(0);
  rope_table_ = ctx.arena.take("rope table", wide(dtype_), {rows, rope_->rotated / 2, 2});
  rope_table(ctx, rope_table_, positions, *rope_);
  rotate(ctx, in, {1, rows}, false);
}

template <class Convolve, class Turn, class Attend>
void QkvMixer::pass(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                    Convolve&& convolve, Turn&& turn, Attend&& attend) {
  const int64_t rows = x.dim(0);
  projected_ = ctx.arena.take("qkv", dtype_, {rows, width()});
  qkv_.forward(ctx, projected_, x);
  convolved_ = projected_;
  if (conv_) {
    convolved_ = ctx.arena.take("convolved qkv", dtype_, {rows, width()});
    convolve(convolved_, projected_);
  }
  turned_ = normalise(ctx, split(convolved_));
  turn(turned_);
  ready_ = unit_rows(ctx, turned_);
  token_gates_.forward(ctx, ready_, x);
  read_ = ctx.arena.take("attention read", dtype_, {rows, heads_, head_dim_});
  attend(read_, ready_);

  normed_read_ = read_;
  if (head_norm_) {
    normed_read_ = ctx.arena.take("normed read", dtype_, read_.shape());
    head_norm_->forward(ctx, normed_read_, read_);
  }
  normed_read_ = normed_read_.view({rows, hidden()});
  gated_read_ = normed_read_;
  if (output_gate_) {
    gate_ = ctx.arena.take("output gate", dtype_, normed_read_.shape());
    gated_read_ = ctx.arena.take("gated read", dtype_, normed_read_.shape());
    output_gate_->forward(ctx, gate_, x);
    silu_gate_forward(ctx, gated_read_, normed_read_, gate_);
  }
  out_.forward(ctx, y, gated_read_, residual);
}

void QkvMixer::forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       const Sequence& sequence) {
  const Shape by_time{sequence.batch, sequence.time, width()};
  pass(
      ctx, y, x, residual,
      [&](const Tensor& out, const Tensor& in) {
        short_conv_forward(ctx, out.view(by_time), in.view(by_time), conv_->value, {}, sequence.starts);
      },
      [&](const AttentionInputs& heads) {
        take_rope_table(ctx, sequence.time, 0);
        rotate(ctx, heads, sequence, false);
      },
      [&](const Tensor& o, const AttentionInputs& in) {
        attention_->forward(ctx, by_sequence(o, sequence), by_sequence(in, sequence), sequence);
      });
}

// Room for the gradients of attention's inputs: q and k of the delta rule are those of the unit rows.
AttentionInputs QkvMixer::take_gradients(Context& ctx, const AttentionInputs& turned) const {
  AttentionInputs out = turned;
  if (unit_map_) {
    out.q = ctx.arena.take("unit q gradient", dtype_, turned.q.shape());
    out.k = ctx.arena.take("unit k gradient", dtype_, turned.k.shape());
  }
  if (ready_.beta.defined()) out.beta = ctx.arena.take("beta gradient", wide(dtype_), ready_.beta.shape());
  if (ready_.log_decay.defined())
    out.log_decay = ctx.arena.take("log decay gradient", wide(dtype_), ready_.log_decay.shape());
  return out;
}

void QkvMixer::backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                        const Sequence& sequence) {
  Arena::Scope scope(ctx.arena);
  const Shape fused{sequence.tokens(), width()}, by_time{sequence.batch, sequence.time, width()};
  const Tensor dread = ctx.arena.take("attention read gradient", dtype_, read_.shape());
  const Tensor dread_rows = dread.view(normed_read_.shape());
  out_.backward(ctx, dread_rows, dy, gated_read_);
  Tensor dgate;
  if (output_gate_) {
    dgate = ctx.arena.take("output gate gradient", dtype_, gate_.shape());
    silu_gate_backward(ctx, dread_rows, dgate, dread_rows, normed_read_, gate_);
  }
  if (head_norm_) head_norm_->backward(ctx, dread, dread, read_, false);

  Tensor dfused = ctx.arena.take("qkv gradient", dtype_, fused);
  const AttentionInputs turned = split(dfused), gradients = take_gradients(ctx, turned);
  attention_->backward(ctx, by_sequence(gradients, sequence), by_sequence(dread, sequence),
                       by_sequence(ready_, sequence), by_sequence(read_, sequence), sequence);
  if (unit_map_) {
    unit_feature_backward(ctx, turned.q, gradients.q, turned_.q, q_scale_, *unit_map_);
    unit_feature_backward(ctx, turned.k, gradients.k, turned_.k, k_scale_, *unit_map_);
  }
  if (norm_in_rotation()) {
    const Tensor rows = queries_and_keys(dfused, sequence);
    qk_norm_rope_backward(ctx, rows, q_norm_->weight().gradient, k_norm_->weight().gradient, rows,
                          queries_and_keys(convolved_, sequence), qk_rstd_, norm_and_rotation(sequence));
  } else {
    rotate(ctx, turned, sequence, true);
    normalise_backward(ctx, turned, split(convolved_));
  }
  if (conv_) {
    const Tensor dprojected = ctx.arena.take("qkv gradient before convolution", dtype_, fused);
    short_conv_backward(ctx, dprojected.view(by_time), conv_->gradient, dfused.view(by_time),
                        projected_.view(by_time), conv_->value, {}, {}, sequence.starts);
    dfused = dprojected;
  }
  qkv_.backward(ctx, dx, dfused, x);
  token_gates_.backward(ctx, dx, gradients, ready_, x);
  if (output_gate_) output_gate_->backward(ctx, dx, dgate, x, true);
}

MixerState QkvMixer::take_state(Arena& arena, int64_t batch, int64_t capacity) const {
  MixerState state;
  if (conv_) state.window = arena.take("convolution window", dtype_, {batch, conv_->shape[1] - 1, width()});
  attention_->take_state(arena, dtype_, state, batch, capacity);
  return state;
}

void QkvMixer::prefill(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       const Sequence& sequence, MixerState& state) {
  const Shape by_time{sequence.batch, sequence.time, width()};
  pass(
      ctx, y, x, residual,
      [&](const Tensor& out, const Tensor& in) {
        short_conv_forward(ctx, out.view(by_time), in.view(by_time), conv_->value, {}, sequence.starts,
                           state.window);
        short_conv_window(ctx, state.window, in.view(by_time), sequence.starts, state.window);
      },
      [&](const AttentionInputs& heads) {
        if (sequence.starts.defined()) {
          rotate_rows(ctx, heads, sequence.positions);
        } else {
          take_rope_table(ctx, sequence.time, sequence.position);
          rotate(ctx, heads, sequence, false);
        }
      },
      [&](const Tensor& o, const AttentionInputs& in) {
        attention_->prefill(ctx, by_sequence(o, sequence), by_sequence(in, sequence), sequence, state);
      });
}

void QkvMixer::step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, MixerState& state,
                    const StepPlace& place) {
  pass(
      ctx, y, x, residual,
      [&](const Tensor& out, const Tensor& in) { short_conv_step(ctx, out, in, state.window, conv_->value); },
      [&](const AttentionInputs& heads) { rotate_rows(ctx, heads, place.positions); },
      [&](const Tensor& o, const AttentionInputs& in) { attention_->step(ctx, o, in, state, place); });
}

int64_t QkvMixer::operations(int64_t length) const {
  const int64_t gates = output_gate_ ? hidden() * qkv_.in() : 0;
  const int64_t weights = qkv_.in() * width() + hidden() * qkv_.in() + token_gates_.weights() + gates;
  return 2 * weights + attention_->operations(length);
}

}  // namespace kata
