// A random order of 0 .. size - 1 without storing it: a Feistel network on the next power of two, walked
// until it lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains"). Any position can be
// asked for at any time, which is what lets a loader resume in the middle of an epoch of any length.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace kata {

class Permutation {
 public:
  // size > 0. One order for each (seed, epoch).
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);

  uint64_t operator()(uint64_t index) const;  // index < size; each value below size exactly once

 private:
  uint64_t mix(uint64_t x) const;

  uint64_t size_;
  Philox random_;
  int right_bits_;
  uint64_t left_mask_, right_mask_;
};

}  // namespace kata
