// The Mamba-2 layer (MATH: layers; arXiv 2405.21060): a gated linear attention whose heads share one key (B)
// and one query (C), with values x of heads x head_dim = 2 hidden.
//
//   z, [x, B, C], dt = projections        x, B, C -> short convolution with bias + SiLU
//   dt = softplus(dt + dt_bias), log a = -exp(A_log) dt, per head
//   S_t = a_t S_{t-1} + B_t (dt_t x_t)^T        y_t = S_t^T C_t + D x_t
//   output projection of RMSNorm(y * SiLU(z)), the norm over all heads
#pragma once

#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/norm.h"
#include "nn/token_gates.h"

namespace kata {

class Mamba2Mixer : public Mixer {
 public:
  Mamba2Mixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
              const MixerConfig& mixer);

  void forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
               const Sequence& sequence) override;
  void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                const Sequence& sequence) override;
  MixerState take_state(Arena& arena, int64_t batch, int64_t capacity) const override;
  void prefill(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
               const Sequence& sequence, MixerState& state) override;
  void step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, MixerState& state,
            const StepPlace& place) override;
  int64_t state_entries(int64_t length) const override { return attention_->state_entries(length); }
  int64_t operations(int64_t length) const override;

 private:
  struct Parts {
    Tensor x;     // [rows, heads, head_dim]
    Tensor b, c;  // [rows, state]
  };

  int64_t inner() const { return heads_ * head_dim_; }
  int64_t channels() const { return inner() + 2 * state_; }
  Parts split(const Tensor& xbc) const;
  // The layer from x to y; convolve(out, in) and attend(o, in) differ between training and inference.
  template <class Convolve, class Attend>
  void pass(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, Convolve&& convolve,
            Attend&& attend);

  DType dtype_;
  int64_t heads_, head_dim_, state_;
  Linear gate_, xbc_, dt_, out_;
  Parameter &conv_, &conv_bias_;  // [channels, taps], [channels]
  DecayParameters decay_;
  Parameter& skip_;  // D [heads]
  Norm norm_;
  std::unique_ptr<Attention> attention_;

  // Kept from forward to backward; rows are tokens.
  Tensor z_;                   // [rows, inner]
  Tensor projected_;           // [rows, channels]: x, B, C
  Tensor convolved_;           // likewise
  Tensor dt_input_, dt_step_;  // [rows, heads]
  AttentionInputs ready_;      // C, B, dt x and log a
  Tensor read_;                // [rows, heads, head_dim], D x included
  Tensor gated_, normed_;      // [rows, inner]
};

}  // namespace kata
