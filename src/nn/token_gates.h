// The gates of a linear mixer, a number per token and state head: beta, the strength of a write, and log a,
// the decay (MATH 3, 4).
//
//   beta = sigmoid(w_beta x)        log a = -exp(A_log) softplus(w_decay x + dt_bias)
#pragma once

#include <optional>

#include "nn/attention.h"
#include "nn/linear.h"

namespace kata {

// A_log and dt_bias of a decay: <name>.a_log, <name>.dt_bias, [heads].
struct DecayParameters {
  // exp(A_log) is drawn from [smallest_rate, 16] and above 0; softplus(dt_bias) from [1e-3, 1e-1],
  // log-uniform.
  DecayParameters(Parameters& parameters, const std::string& name, int64_t heads, double smallest_rate);

  Parameter &a_log, &dt_bias;
};

class TokenGates {
 public:
  TokenGates(Parameters& parameters, const std::string& name, int64_t hidden, int64_t heads,
             const MixerConfig& mixer);

  // Sets gates.beta and gates.log_decay, [rows, heads], where the mixer has them. x: [rows, hidden].
  void forward(Context& ctx, AttentionInputs& gates, const Tensor& x);
  // dx += what the gates' gradients pass back. gates: those of forward.
  void backward(Context& ctx, const Tensor& dx, const AttentionInputs& gradients,
                const AttentionInputs& gates, const Tensor& x);
  int64_t weights() const { return weights_; }

 private:
  struct Decay {
    Linear projection;
    DecayParameters parameters;
  };
  int64_t heads_, weights_ = 0;
  std::optional<Linear> beta_;
  std::optional<Decay> decay_;
  Tensor decay_input_;  // w_decay x [rows, heads], kept for backward
};

}  // namespace kata
