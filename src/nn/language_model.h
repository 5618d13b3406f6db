// The decoder: embedding, blocks, final norm, classifier (the embedding again when tied).
#pragma once

#include <memory>
#include <vector>

#include "nn/block.h"

namespace kata {

// Inference: what the model carries from token to token, for `batch` sequences.
struct DecodeState {
  Processor processor;
  std::vector<MixerState> layers;
  int64_t batch = 0;
  int64_t capacity = 0;  // tokens a softmax cache holds; linear mixers do not grow
  int64_t position = 0;  // tokens seen, of every row
  // [batch]: how many of these stand before the row's sequence (rows of different lengths end together).
  std::vector<int32_t> first;
  std::vector<int64_t> places;  // [batch + 1], of a step: positions of the tokens in their rows, position
  Tensor first_there, places_there;  // both, where the model computes
};

// Back to the start of all sequences.
void clear(DecodeState& state);
// At the start of all sequences: how many of the tokens to come stand before each.
void set_first(DecodeState& state, std::vector<int32_t> first);

class LanguageModel {
 public:
  // config.vocab must be set. Parameters are unbound until bind() (planning) or bind to real memory.
  // recompute: a block's activations are computed again in backward instead of kept; no bit changes.
  LanguageModel(const ModelConfig& config, DType dtype, bool recompute = false);

  Parameters& parameters() { return parameters_; }
  const ModelConfig& config() const { return config_; }

  // Losses of every position and, times scale, the gradients, which are added to parameters().gradients().
  // inputs, targets: int32 [batch, time]; target -1 = not scored; losses: [batch * time], 0 where not scored.
  // starts: int32 [batch, time], where documents begin (ops/documents.h), or undefined. scored_bound: at most
  // so many positions are scored, which spares a GPU the logits of the others; -1: not known.
  void forward_backward(Context& ctx, const Tensor& losses, const Tensor& inputs, const Tensor& targets,
                        double scale, const Tensor& starts = {}, int64_t scored_bound = -1);

  // Losses and, where defined, predictions int32 [batch * time] (the most likely token, -1 where not scored).
  void evaluate(Context& ctx, const Tensor& losses, const Tensor& predictions, const Tensor& inputs,
                const Tensor& targets, const Tensor& starts = {});

  // A zeroed state whose tensors live in `arena`, in the memory of the processor.
  DecodeState take_state(Arena& arena, int64_t batch, int64_t capacity,
                         const Processor& processor = {}) const;
  // logits, Wide [batch, vocab], after the last of `time` more tokens of each row (int32 [batch, time]). Row
  // b's sequence begins at token state.first[b]; what stands before it is not seen by it.
  void prefill(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state);
  // logits, Wide [batch, vocab], after one more token each (int32 [batch]).
  void step(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state);
  // The parts of a step, for who records the second, which is the same work at every position: the places of
  // the tokens on their way to the processor, the logits. state.position is the caller's to move on.
  void send_places(Context& ctx, DecodeState& state) const;
  void step_at_places(Context& ctx, const Tensor& logits, const Tensor& tokens, DecodeState& state);

  // Numbers that a sequence of `length` tokens leaves in the mixers' states, all layers.
  int64_t state_entries(int64_t length) const;
  // Operations of one more token after `length` tokens, classifier included. Training takes three times as
  // many.
  int64_t operations(int64_t length) const;

 private:
  Tensor classifier() const { return head_ ? head_->value : embedding_.value; }
  Tensor classifier_gradient() const { return head_ ? head_->gradient : embedding_.gradient; }

  ModelConfig config_;
  DType dtype_;
  bool recompute_;
  Parameters parameters_;
  Parameter& embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Norm norm_;
  Parameter* head_ = nullptr;
};

}  // namespace kata
