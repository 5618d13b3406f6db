// A checkpoint as a model of tokens.
#pragma once

#include <memory>

#include "data/batch.h"
#include "eval/harness/token_scorer.h"
#include "nn/generator.h"
#include "train/answers.h"
#include "train/inference_model.h"

namespace kata::harness {

// Rows are padded on the right to the longest of their batch: a causal model does not see what follows.
// Losses are log-softmax in fp32, sums are double.
class CheckpointModel : public TokenModel {
 public:
  explicit CheckpointModel(InferenceModel& loaded) : loaded_(loaded) {}

  int64_t vocab() const override;
  std::vector<Likelihood> score(const std::vector<Row>& rows) override;
  // ExitCode::device on a GPU, where the recurrent form is not built.
  void generate(const std::vector<int32_t>& prompt, int64_t max_tokens,
                const std::function<bool(int32_t)>& more) override;

 private:
  Generator& generator_for(int64_t tokens);

  InferenceModel& loaded_;
  Arena memory_ = Arena(0);  // grows to the largest batch so far
  Answers answers_;
  std::unique_ptr<Generator> generator_;
  int64_t capacity_ = 0;  // of the generator, in tokens
};

}  // namespace kata::harness
