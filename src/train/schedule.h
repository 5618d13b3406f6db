// Learning rate as a function of the step: linear warm-up, then constant, cosine, or stable and a final
// decay.
#pragma once

#include "config/train_config.h"

namespace kata {

// step counts from 1 to steps. Cosine and wsd reach final_lr at the last step.
double learning_rate(const OptimizerConfig& optimizer, int64_t steps, int64_t step);

}  // namespace kata
