// Token-by-token inference of one sequence in the recurrent form.
//
// Linear mixers carry a state of fixed size: memory and time per token do not depend on the position. Softmax
// layers keep their keys and values, for `capacity` tokens.
#pragma once

#include <vector>

#include "nn/language_model.h"

namespace kata {

class Generator {
 public:
  Generator(LanguageModel& model, int64_t capacity);

  // Reads one more token; the logits of the next one, [vocab], valid until the next call.
  const float* feed(int32_t token);
  int64_t position() const { return state_.position; }
  size_t memory() const { return memory_.capacity() + scratch_.capacity(); }  // bytes, weights aside

 private:
  LanguageModel& model_;
  Arena memory_;   // the state
  Arena scratch_;  // one step
  DecodeState state_;
  std::vector<float> logits_;
};

}  // namespace kata
