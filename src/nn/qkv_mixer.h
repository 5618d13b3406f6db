// The mixers with queries, keys and values (MATH: KATA layer, softmax layer, DeltaNet):
//
//   q, k, v = projections -> [short convolution + SiLU] -> [norm of q and k] -> [RoPE] -> [unit features:
//   delta rule]
//           -> attention, with beta and decay where the mixer has them
//           -> [RMSNorm per head, every read but softmax] -> [* SiLU(gate projection)] -> output projection
//
// The three projections are one matrix, rows q, then k, then v: [(heads + 2 kv_heads) * head_dim, hidden].
#pragma once

#include <optional>

#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/norm.h"
#include "nn/token_gates.h"
#include "ops/qk_norm_rope.h"

namespace kata {

class QkvMixer : public Mixer {
 public:
  QkvMixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
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
  enum class QkNorm { none, rms, l2 };

  int64_t width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  int64_t hidden() const { return heads_ * head_dim_; }
  AttentionInputs split(const Tensor& fused) const;
  AttentionInputs normalise(Context& ctx, const AttentionInputs& in);
  void normalise_backward(Context& ctx, const AttentionInputs& gradient, const AttentionInputs& in) const;
  AttentionInputs unit_rows(Context& ctx, const AttentionInputs& in) const;
  void take_rope_table(Context& ctx, int64_t rows, int64_t position);
  void rotate(Context& ctx, const AttentionInputs& in, const Sequence& sequence, bool inverse) const;
  // Where q and k have a learned norm and positions, rotate() and its backward do both in one pass.
  bool norm_in_rotation() const { return qk_norm_ == QkNorm::rms && rope_ && qk_norm_rope_takes(*rope_); }
  QkNormRope norm_and_rotation(const Sequence& sequence) const;
  Tensor queries_and_keys(const Tensor& fused, const Sequence& sequence) const;
  void rotate_rows(Context& ctx, const AttentionInputs& in, const Tensor& positions);
  AttentionInputs take_gradients(Context& ctx, const AttentionInputs& turned) const;
  // The layer from x to y; convolve(out, in), turn(q and k) and attend(o, in) differ between training and
  // inference.
  template <class Convolve, class Turn, class Attend>
  void pass(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, Convolve&& convolve,
            Turn&& turn, Attend&& attend);

  DType dtype_;
  int64_t heads_, kv_heads_, head_dim_;
  QkNorm qk_norm_;
  std::optional<RopeSpec> rope_;
  Linear qkv_, out_;
  Parameter* conv_ = nullptr;  // [width, taps]
  std::optional<Norm> q_norm_, k_norm_, head_norm_;
  TokenGates token_gates_;
  std::optional<Linear> output_gate_;
  std::optional<FeatureMap> unit_map_;  // of the delta rule
  double q_scale_ = 1, k_scale_ = 1;    // lengths of its unit rows
  std::unique_ptr<Attention> attention_;

  // Kept from forward to backward; rows are tokens.
  Tensor projected_;           // [rows, width]
  Tensor convolved_;           // [rows, width], is projected_ without a convolution
  AttentionInputs turned_;     // after norm and RoPE
  AttentionInputs ready_;      // what attention reads, with the gates
  Tensor q_rnorm_, k_rnorm_;   // l2 row scales
  Tensor turned_rows_;         // q and k of turned_ side by side, where one pass made both
  Tensor qk_rstd_;             // its row scales
  Tensor rope_table_;          // [positions, pairs, 2]
  Tensor read_, normed_read_;  // attention output [rows, heads, head_dim]; after the head norm
  Tensor gate_, gated_read_;   // gate projection [rows, heads * head_dim]; input of the output projection
};

}  // namespace kata
