// Inference of a batch of sequences: prompts at once in the chunked form, then token by token in the
// recurrent one.
//
// Linear mixers carry a state of fixed size: memory and time per token do not depend on the position. Softmax
// layers keep their keys and values, for `capacity` tokens of each row. On a GPU a token is a recorded step
// that is launched again: the host sends the tokens and their places, and reads the logits.
#pragma once

#include <vector>

#include "nn/language_model.h"

namespace kata {

class Generator {
 public:
  static constexpr int64_t prefill_tokens =
      256;  // of each row at a time; scratch does not grow with a prompt

  // capacity: tokens of the longest row, prompt included. The model's weights lie where the processor
  // computes.
  Generator(LanguageModel& model, int64_t capacity, int64_t batch = 1, const Processor& processor = {});

  // Starts a sequence a row with its prompt, at least one token each, of any lengths. The logits of the next
  // tokens, [batch, vocab], valid until the next call.
  const float* start(const std::vector<std::vector<int32_t>>& prompts);
  // Forgets all sequences; start may follow.
  void reset();
  // One more token each; likewise.
  const float* feed(const std::vector<int32_t>& tokens);

  int64_t position() const { return held_.state.position; }                   // tokens of the longest row
  size_t memory() const { return memory_.capacity() + scratch_.capacity(); }  // bytes, weights aside

 private:
  // What lies in memory_, the memory of the processor.
  struct Held {
    DecodeState state;
    Tensor tokens;  // int32 [batch * prefill_tokens]
    Tensor logits;  // float [batch, vocab]
  };

  static Held take(const LanguageModel& model, Arena& arena, int64_t capacity, int64_t batch,
                   const Processor& processor);
  static size_t plan_held(const LanguageModel& model, int64_t capacity, int64_t batch,
                          const Processor& processor);
  static size_t plan_scratch(LanguageModel& model, int64_t capacity, int64_t batch,
                             const Processor& processor);
  bool on_gpu() const { return processor_.device == Device::cuda; }
  // ids_, checked, as [batch, time] in the memory of the processor.
  Tensor send_ids(int64_t time);
  const float* results();

  LanguageModel& model_;
  Processor processor_;
  Arena memory_;   // what is kept from call to call
  Arena scratch_;  // one step, or one piece of a prompt
  Held held_;
  std::vector<int32_t> ids_;  // the tokens of a call
  // On a GPU: the logits as the host reads them; the step, recorded after one was queued as it stands.
  std::unique_ptr<void, FreePinned> host_logits_;
  std::unique_ptr<GpuGraph> step_;
  bool stepped_ = false;
};

}  // namespace kata
