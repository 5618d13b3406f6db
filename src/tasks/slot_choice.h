// Where the questions of a recall task stand, and which ids it takes: the draws that MQAR and overwrite
// share.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/numpy_random.h"

namespace kata {

// Distinct slots, slot i (from 0) with weight (i + 1)^(a-1), a = 0.01, so that most of them are early. Draws
// as RandomState.choice(replace=False, p=weights) does: as many numbers as slots are missing, repeats of one
// round dropped, taken slots weightless in the next.
class SlotChoice {
 public:
  explicit SlotChoice(int64_t slots);

  // out: [count], count <= slots.
  void draw(NumpyRandom& random, int32_t* out, int64_t count);

 private:
  std::vector<double> weights_, first_cdf_, cdf_, left_;
};

// For each of `rows`, the first `count` of a random order of the ids begin .. end - 1; out: [rows, count].
void draw_ids(NumpyRandom& random, int64_t begin, int64_t end, int64_t rows, int64_t count,
              std::vector<int32_t>& out);

}  // namespace kata
