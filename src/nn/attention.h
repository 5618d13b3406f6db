// The heart of a q, k, v mixer: how queries read keys and values. Softmax, or a point of the linear grid.
//
// q [B, T, Hq, d], k [B, T, Hkv, d], v [B, T, Hkv, dv], o [B, T, Hq, dv]; strided views.
#pragma once

#include <memory>

#include "nn/mixer.h"

namespace kata {

class Attention {
 public:
  virtual ~Attention() = default;
  virtual void forward(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k, const Tensor& v) = 0;
  virtual void backward(Context& ctx, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o) = 0;
  virtual void take_state(Arena& arena, DType dtype, MixerState& state, int64_t batch,
                          int64_t capacity) const = 0;
  // o [B, Hq, dv], q [B, Hq, d], k [B, Hkv, d], v [B, Hkv, dv]
  virtual void step(Context& ctx, const Tensor& o, const Tensor& q, const Tensor& k, const Tensor& v,
                    MixerState& state, int64_t position) = 0;
  virtual int64_t state_entries(int64_t length) const = 0;
};

std::unique_ptr<Attention> make_attention(const ModelConfig& model, const MixerConfig& mixer);

}  // namespace kata
