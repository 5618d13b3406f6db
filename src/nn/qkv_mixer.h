// The mixers with queries, keys and values (MATH: KATA layer, softmax layer):
//
//   q, k, v = projections -> [short convolution + SiLU] -> [norm of q and k] -> [RoPE] -> attention
//           -> [RMSNorm per head, every read but softmax] -> output projection
//
// The three projections are one matrix, rows q, then k, then v: [(heads + 2 kv_heads) * head_dim, hidden].
#pragma once

#include <optional>

#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/norm.h"
#include "ops/rope.h"

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
  void step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, MixerState& state,
            int64_t position) override;
  int64_t state_entries(int64_t length) const override { return attention_->state_entries(length); }

 private:
  enum class QkNorm { none, rms, l2 };
  struct Heads {
    Tensor q, k, v;  // [rows, heads, head_dim], strided
  };

  int64_t width() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  Heads split(const Tensor& fused) const;
  Heads normalise(Context& ctx, const Heads& in);
  void normalise_backward(Context& ctx, const Heads& gradient, const Heads& in) const;
  void rotate(Context& ctx, const Heads& heads, const Sequence& sequence, bool inverse) const;
  void take_rope_table(Context& ctx, int64_t time, int64_t position, DType dtype);
  Tensor head_output(Context& ctx, const Tensor& o);

  DType dtype_;
  int64_t heads_, kv_heads_, head_dim_;
  QkNorm qk_norm_;
  std::optional<RopeSpec> rope_;
  Linear qkv_, out_;
  Parameter* conv_ = nullptr;  // [width, taps]
  std::optional<Norm> q_norm_, k_norm_, head_norm_;
  std::unique_ptr<Attention> attention_;

  // Kept from forward to backward.
  Tensor projected_;          // [tokens, width]
  Tensor convolved_;          // [tokens, width], is projected_ without a convolution
  Heads ready_;               // after norm and RoPE
  Tensor q_rnorm_, k_rnorm_;  // l2 row scales
  Tensor rope_table_;         // [time, pairs, 2]
  Tensor read_;               // attention output [tokens, heads, head_dim]
  Tensor normed_read_;        // after the head norm
};

}  // namespace kata
