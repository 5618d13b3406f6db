// A sequence mixer: the layer that lets tokens see earlier tokens.
//
// x and y are [batch * time, hidden], token-major. forward keeps what backward needs in the caller's arena
// scope; backward follows the forward of the same batch. prefill and step are inference: several tokens or
// one of every sequence, with a state.
#pragma once

#include <memory>

#include "base/context.h"
#include "config/model_config.h"
#include "nn/parameters.h"

namespace kata {

// `time` tokens of each of `batch` rows.
struct Sequence {
  int64_t batch = 0, time = 0;
  Tensor starts = {};    // int32 [batch, time]: where documents begin (ops/documents.h); undefined: one a row
  int64_t position = 0;  // prefill: of the first token, counted in tokens that the state has seen
  Tensor positions = {};  // prefill with starts: int64 [batch * time], of each token in its document

  int64_t tokens() const { return batch * time; }
};

// What a mixer carries from token to token, for `batch` sequences. Zero = the start of a sequence.
struct MixerState {
  Tensor window;        // short convolution: [batch, taps - 1, channels], undefined without one
  Tensor memory;        // linear mixers: [batch, kv_heads, features, value width (+ 1 for the mass)]
  Tensor keys, values;  // softmax: [batch, capacity, kv_heads, head_dim]
};

// Where the next token of each row stands. The tensors lie where the model computes.
struct StepPlace {
  int64_t position = 0;  // tokens that the state has seen
  Tensor first;          // int32 [batch]: of these, the ones before the row's sequence
  Tensor positions;      // int64 [batch]: of the token in the row's sequence
  Tensor last;           // on a GPU, int64 [1]: the position again, for kernels that a recorded step holds
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual void forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       const Sequence& sequence) = 0;  // y = residual + mixer(x)
  virtual void backward(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& x,
                        const Sequence& sequence) = 0;  // dx = gradient through the mixer alone
  virtual MixerState take_state(Arena& arena, int64_t batch, int64_t capacity) const = 0;
  // As forward, going on from the state, which is moved on.
  virtual void prefill(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual,
                       const Sequence& sequence, MixerState& state) = 0;
  // y, x, residual: [batch, hidden].
  virtual void step(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& residual, MixerState& state,
                    const StepPlace& place) = 0;
  // Numbers that a sequence of `length` tokens leaves in the state (convolution window aside).
  virtual int64_t state_entries(int64_t length) const = 0;
  // Operations of one more token after `length` tokens: two for each weight of the projections, and what the
  // state takes (update and read; for softmax the scores and the average).
  virtual int64_t operations(int64_t length) const = 0;
};

std::unique_ptr<Mixer> make_mixer(Parameters& parameters, const std::string& name, const ModelConfig& model,
                                  const MixerConfig& mixer);

}  // namespace kata
