#include "nn/mamba2_mixer.h"

#include <cmath>

#include "ops/decay_gate.h"
#include "ops/head_scale.h"
#include "ops/head_sum.h"
#include "ops/short_conv.h"
#include "ops/silu_gate.h"

namespace kata {

namespace {

constexpr double deviation = 0.02;

}  // namespace

Mamba2Mixer::Mamba2Mixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
                         const MixerConfig& mixer)
    : dtype_(parameters.dtype()),
      heads_(2 * model.hidden / model.head_dim),
      head_dim_(model.head_dim),
      state_(mixer.state),
      gate_(parameters, name + ".gate", model.hidden, inner(), deviation),
      xbc_(parameters, name + ".xbc", model.hidden, channels(), deviation),
      dt_(parameters, name + ".dt", model.hidden, heads_, deviation),
      out_(parameters, name + ".out", inner(), model.hidden,
           deviation / std::sqrt(2.0 * static_cast<double>(model.layers))),
      conv_(parameters.add(name + ".conv.weight", {channels(), mixer.conv}, Init::uniform(0.5), false)),
      conv_bias_(parameters.add(name + ".conv.bias", {channels()}, Init::constant(0), false)),
      decay_(parameters, name, heads_, 1),
      skip_(parameters.add(name + ".d", {heads_}, Init::constant(1), false)),
      norm_(parameters, name + ".norm", inner(), model.norm_eps),
      attention_(make_attention({heads_, heads_, state_, head_dim_}, mixer)) {}

Mamba2Mixer::Parts Mamba2Mixer::split(const Tensor& xbc) const {
  return {xbc.columns(0, inner()).split_last(heads_, head_dim_), xbc.columns(inner(), inner() + state_),
          xbc.columns(inner() + state_, channels())};
}

template <class Convolve, class Attend>
void Mamba2Mixer::pass(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       Convolve&& convolve, Attend&& attend) {
  const int64_t rows = x.dim(0);
  z_ = ctx.arena.take("mamba2 gate", dtype_, {rows, inner()});
  projected_ = ctx.arena.take("mamba2 x B C", dtype_, {rows, channels()});
  convolved_ = ctx.arena.take("convolved x B C", dtype_, {rows, channels()});
  dt_input_ = ctx.arena.take("dt input", dtype_, {rows, heads_});
  dt_step_ = ctx.arena.take("dt", wide(dtype_), {rows, heads_});
  gate_.forward(ctx, z_, x);
  xbc_.forward(ctx, projected_, x);
  dt_.forward(ctx, dt_input_, x);
  convolve(convolved_, projected_);

  const Parts parts = split(convolved_);
  ready_.q = parts.c.repeat(heads_);
  ready_.k = parts.b.repeat(heads_);
  ready_.v = ctx.arena.take("dt x", dtype_, {rows, heads_, head_dim_});
  ready_.log_decay = ctx.arena.take("log decay", wide(dtype_), {rows, heads_});
  decay_gate_forward(ctx, ready_.log_decay, dt_step_, dt_input_, decay_.a_log.value, decay_.dt_bias.value);
  head_scale_forward(ctx, ready_.v, dt_step_, parts.x, false);
  read_ = ctx.arena.take("attention read", dtype_, {rows, heads_, head_dim_});
  attend(read_, ready_);
  head_scale_forward(ctx, read_, skip_.value, parts.x, true);

  gated_ = ctx.arena.take("gated read", dtype_, {rows, inner()});
  normed_ = ctx.arena.take("normed read", dtype_, {rows, inner()});
  silu_gate_forward(ctx, gated_, read_.view(gated_.shape()), z_);
  norm_.forward(ctx, normed_, gated_);
  out_.forward(ctx, y, normed_, residual);
}

void Mamba2Mixer::forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                          const Sequence& sequence) {
  const Shape by_time{sequence.batch, sequence.time, channels()};
  pass(
      ctx, y, x, residual,
      [&](const Tensor& out, const Tensor& in) {
        short_conv_forward(ctx, out.view(by_time), in.view(by_time), conv_.value, conv_bias_.value,
                           sequence.starts);
      },
      [&](const Tensor& o, const AttentionInputs& in) {
        attention_->forward(ctx, by_sequence(o, sequence), by_sequence(in, sequence), sequence);
      });
}

void Mamba2Mixer::backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const Sequence& sequence) {
  Arena::Scope scope(ctx.arena);
  const Shape by_time{sequence.batch, sequence.time, channels()};
  const Shape keys{sequence.tokens(), heads_, state_}, gates{sequence.tokens(), heads_};
  const Tensor dgated = ctx.arena.take("gated read gradient", dtype_, gated_.shape());
  const Tensor dz = ctx.arena.take("mamba2 gate gradient", dtype_, z_.shape());
  const Tensor dread = dgated.view(read_.shape());
  out_.backward(ctx, dgated, dy, normed_);
  norm_.backward(ctx, dgated, dgated, gated_, false);
  silu_gate_backward(ctx, dgated, dz, dgated, read_.view(gated_.shape()), z_);

  // With a raw read the gradients of attention do not look at what was read, so that D x may stand in read_.
  const AttentionInputs gradients{ctx.arena.take("C gradients of the heads", dtype_, keys),
                                  ctx.arena.take("B gradients of the heads", dtype_, keys),
                                  ctx.arena.take("dt x gradient", dtype_, read_.shape()),
                                  {},
                                  ctx.arena.take("log decay gradient", wide(dtype_), gates)};
  attention_->backward(ctx, by_sequence(gradients, sequence), by_sequence(dread, sequence),
                       by_sequence(ready_, sequence), by_sequence(read_, sequence), sequence);

  const Tensor dconvolved = ctx.arena.take("x B C gradient", dtype_, convolved_.shape());
  const Tensor ddt = ctx.arena.take("dt gradient", wide(dtype_), gates);
  const Tensor ddt_input = ctx.arena.take("dt input gradient", dtype_, gates);
  const Parts parts = split(convolved_), dparts = split(dconvolved);
  head_scale_backward(ctx, dparts.x, skip_.gradient, dread, skip_.value, parts.x, false);
  head_scale_backward(ctx, dparts.x, ddt, gradients.v, dt_step_, parts.x, true);
  head_sum(ctx, dparts.c, gradients.q);
  head_sum(ctx, dparts.b, gradients.k);
  decay_gate_backward(ctx, ddt_input, decay_.a_log.gradient, decay_.dt_bias.gradient, gradients.log_decay,
                      ddt, dt_input_, decay_.a_log.value, decay_.dt_bias.value);

  const Tensor dprojected = ctx.arena.take("x B C gradient before convolution", dtype_, projected_.shape());
  short_conv_backward(ctx, dprojected.view(by_time), conv_.gradient, dconvolved.view(by_time),
                      projected_.view(by_time), conv_.value, conv_bias_.value, conv_bias_.gradient,
                      sequence.starts);
  xbc_.backward(ctx, dx, dprojected, x);
  gate_.backward(ctx, dx, dz, x, true);
  dt_.backward(ctx, dx, ddt_input, x, true);
}

MixerState Mamba2Mixer::take_state(Arena& arena, int64_t batch, int64_t capacity) const {
  MixerState state;
  state.window = arena.take("convolution window", dtype_, {batch, conv_.shape[1] - 1, channels()});
  attention_->take_state(arena, dtype_, state, batch, capacity);
  return state;
}

void Mamba2Mixer::prefill(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                          const Sequence& sequence, MixerState& state) {
  const Shape by_time{sequence.batch, sequence.time, channels()};
  pass(
      ctx, y, x, residual,
      [&](const Tensor& out, const Tensor& in) {
        short_conv_forward(ctx, out.view(by_time), in.view(by_time), conv_.value, conv_bias_.value,
                           sequence.starts, state.window);
        short_conv_window(ctx, state.window, in.view(by_time), sequence.starts, state.window);
      },
      [&](const Tensor& o, const AttentionInputs& in) {
        attention_->prefill(ctx, by_sequence(o, sequence), by_sequence(in, sequence), sequence, state);
      });
}

void Mamba2Mixer::step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       MixerState& state, const StepPlace& place) {
  pass(
      ctx, y, x, residual,
      [&](const Tensor& out, const Tensor& in) {
        short_conv_step(ctx, out, in, state.window, conv_.value, conv_bias_.value);
      },
      [&](const Tensor& o, const AttentionInputs& in) { attention_->step(ctx, o, in, state, place); });
}

int64_t Mamba2Mixer::operations(int64_t length) const {
  return 2 * gate_.in() * (2 * inner() + channels() + heads_) + attention_->operations(length);
}

}  // namespace kata
