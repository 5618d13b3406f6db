// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace kata {

struct SamplingOptions {
  double temperature = 1;  // 0 = the most likely token
  int64_t top_k = 0;       // only the k most likely; 0 = all
  double top_p = 1;        // only the most likely that together reach this probability
  uint64_t seed = 0;
};

// Draws token after token; draw i is a pure function of (seed, i) and the logits.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options);

  // logits: [vocab]. Ties go to the lower id. ExitCode::numeric when a logit is not a number.
  int32_t next(const float* logits, int64_t vocab);

 private:
  SamplingOptions options_;
  Philox random_;
  uint64_t draws_ = 0;
  std::vector<int32_t> order_;   // candidates, most likely first
  std::vector<double> weights_;  // of the candidates
};

}  // namespace kata
