// What a model says of tokens that lie in host memory, on whatever processor it computes.
#pragma once

#include <vector>

#include "nn/language_model.h"

namespace kata {

// Of every token of a slice of rows, in host memory.
struct Answers {
  std::vector<double> losses;        // nats, 0 where not scored
  std::vector<int32_t> predictions;  // the most likely token, -1 where not scored
};

// inputs, targets, starts (or undefined): int32 [rows, length] in host memory. On a planning arena only the
// memory is taken.
void answer(LanguageModel& model, Context& ctx, const Tensor& inputs, const Tensor& targets,
            const Tensor& starts, Answers& answers);

}  // namespace kata
