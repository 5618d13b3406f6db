// The heart of a q, k, v mixer: how queries read keys and values. Softmax, or a point of the linear grid.
#pragma once

#include <memory>

#include "nn/mixer.h"
#include "ops/feature_map.h"

namespace kata {

// q [B, T, Hq, d], k [B, T, Hkv, d], v [B, T, Hkv, dv], strided views; for one token without T. The gates are
// [B, T, Hkv] or [B, Hkv], undefined where the mixer has none. Also the gradients of all of these.
struct AttentionInputs {
  Tensor q, k, v;
  Tensor beta = {}, log_decay = {};
};

// Rows [batch * time, ..] as [batch, time, ..]; what is undefined stays so.
inline Tensor by_sequence(const Tensor& rows, const Sequence& sequence) {
  return rows.defined() ? rows.split_first(sequence.batch, sequence.time) : rows;
}
inline AttentionInputs by_sequence(const AttentionInputs& rows, const Sequence& sequence) {
  return {by_sequence(rows.q, sequence), by_sequence(rows.k, sequence), by_sequence(rows.v, sequence),
          by_sequence(rows.beta, sequence), by_sequence(rows.log_decay, sequence)};
}

class Attention {
 public:
  virtual ~Attention() = default;
  // o [B, T, Hq, dv]. The starts of the sequence are its documents.
  virtual void forward(Context& ctx, const Tensor& o, const AttentionInputs& in,
                       const Sequence& sequence) = 0;
  virtual void backward(Context& ctx, const AttentionInputs& gradients, const Tensor& d_o,
                        const AttentionInputs& in, const Tensor& o, const Sequence& sequence) = 0;
  virtual void take_state(Arena& arena, DType dtype, MixerState& state, int64_t batch,
                          int64_t capacity) const = 0;
  virtual void prefill(Context& ctx, const Tensor& o, const AttentionInputs& in, const Sequence& sequence,
                       MixerState& state) = 0;
  // o [B, Hq, dv]
  virtual void step(Context& ctx, const Tensor& o, const AttentionInputs& in, MixerState& state,
                    const StepPlace& place) = 0;
  virtual int64_t state_entries(int64_t length) const = 0;
  virtual int64_t operations(int64_t length) const = 0;  // of one token, all heads
};

// The sizes of one attention; a linear mixer may have keys and values of different widths.
struct AttentionHeads {
  int64_t heads = 0, kv_heads = 0, width = 0, value_width = 0;
};

std::unique_ptr<Attention> make_attention(const AttentionHeads& heads, const MixerConfig& mixer);

// The map of a linear mixer on keys of this width.
FeatureMap feature_map(const MixerConfig& mixer, int64_t width);

}  // namespace kata
