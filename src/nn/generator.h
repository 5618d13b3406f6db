// Inference of a batch of sequences: prompts at once in the chunked form, then token by token in the
// recurrent one.
//
// Linear mixers carry a state of fixed size: memory and time per token do not depend on the position. Softmax
// layers keep their keys and values, for `capacity` tokens of each row.
#pragma once

#include <vector>

#include "nn/language_model.h"

namespace kata {

class Generator {
 public:
  static constexpr int64_t prefill_tokens =
      256;  // of each row at a time; scratch does not grow with a prompt

  // capacity: tokens of the longest row, prompt included.
  Generator(LanguageModel& model, int64_t capacity, int64_t batch = 1);

  // Starts a sequence a row with its prompt, at least one token each, of any lengths. The logits of the next
  // tokens, [batch, vocab], valid until the next call.
  const float* start(const std::vector<std::vector<int32_t>>& prompts);
  // Forgets all sequences; start may follow.
  void reset();
  // One more token each; likewise.
  const float* feed(const std::vector<int32_t>& tokens);

  int64_t position() const { return state_.position; }                        // tokens of the longest row
  size_t memory() const { return memory_.capacity() + scratch_.capacity(); }  // bytes, weights aside

 private:
  LanguageModel& model_;
  Arena memory_;   // the state
  Arena scratch_;  // one step, or one piece of a prompt
  DecodeState state_;
  std::vector<float> logits_;
};

}  // namespace kata
