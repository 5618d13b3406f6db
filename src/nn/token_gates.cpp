#include "nn/token_gates.h"

#include "ops/decay_gate.h"
#include "ops/sigmoid.h"

namespace kata {

namespace {
constexpr double deviation = 0.02;
}

DecayParameters::DecayParameters(Parameters& parameters, const std::string& name, int64_t heads,
                                 double smallest_rate)
    : a_log(parameters.add(name + ".a_log", {heads}, Init::log_of_uniform(smallest_rate, 16), false)),
      dt_bias(parameters.add(name + ".dt_bias", {heads}, Init::inverse_softplus(1e-3, 1e-1), false)) {}

TokenGates::TokenGates(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads,
                       const MixerConfig& mixer)
    : heads_(heads) {
  if (mixer.delta()) beta_.emplace(parameters, name + ".beta", hidden, heads, deviation);
  if (mixer.decays())
    decay_.emplace(Decay{Linear(parameters, name + ".decay", hidden, heads, deviation),
                         DecayParameters(parameters, name + ".decay", heads, 0)});
  weights_ = (mixer.delta() + mixer.decays()) * hidden * heads;
}

void TokenGates::forward(Context& ctx, AttentionInputs& gates, const Tensor& x) {
  const Shape shape{x.dim(0), heads_};
  if (beta_) {
    const Tensor beta_input = ctx.arena.take("beta input", x.dtype(), shape);
    gates.beta = ctx.arena.take("beta", wide(x.dtype()), shape);
    beta_->forward(ctx, beta_input, x);
    sigmoid_forward(ctx, gates.beta, beta_input);
  }
  if (decay_) {
    decay_input_ = ctx.arena.take("decay input", x.dtype(), shape);
    gates.log_decay = ctx.arena.take("log decay", wide(x.dtype()), shape);
    decay_->projection.forward(ctx, decay_input_, x);
    decay_gate_forward(ctx, gates.log_decay, {}, decay_input_, decay_->parameters.a_log.value,
                       decay_->parameters.dt_bias.value);
  }
}

void TokenGates::backward(Context& ctx, const Tensor& dx, const AttentionInputs& gradients,
                          const AttentionInputs& gates, const Tensor& x) {
  Arena::Scope scope(ctx.arena);
  const Tensor d = ctx.arena.take("gate gradient", x.dtype(), {x.dim(0), heads_});
  if (beta_) {
    sigmoid_backward(ctx, d, gradients.beta, gates.beta);
    beta_->backward(ctx, dx, d, x, true);
  }
  if (decay_) {
    const DecayParameters& p = decay_->parameters;
    decay_gate_backward(ctx, d, p.a_log.gradient, p.dt_bias.gradient, gradients.log_decay, {}, decay_input_,
                        p.a_log.value, p.dt_bias.value);
    decay_->projection.backward(ctx, dx, d, x, true);
  }
}

}  // namespace kata
