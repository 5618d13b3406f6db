#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace kata {

namespace {
constexpr uint64_t rounds = 8;
}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size_(size), random_(Philox(seed, stream_data).bits(epoch), stream_data) {
  KATA_CHECK(size > 0 && size <= uint64_t{1} << 62, "size = {}", size);
  const int bits = std::max(2, static_cast<int>(std::bit_width(size - 1)));
  right_bits_ = (bits + 1) / 2;
  right_mask_ = (uint64_t{1} << right_bits_) - 1;
  left_mask_ = (uint64_t{1} << (bits - right_bits_)) - 1;
}

// The two parts take turns: each is changed by a function of the other, which the same step would undo.
uint64_t Permutation::mix(uint64_t x) const {
  uint64_t left = x >> right_bits_, right = x & right_mask_;
  for (uint64_t round = 0; round < rounds; round += 2) {
    left ^= random_.block(round << 32 | right)[0] & left_mask_;
    right ^= random_.block((round + 1) << 32 | left)[0] & right_mask_;
  }
  return left << right_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  KATA_CHECK(index < size_, "index {} of {}", index, size_);
  // The domain is below twice the size (or has 4 points), so few steps are needed; the walk returns to its
  // start, which lies inside, so it ends.
  do index = mix(index);
  while (index >= size_);
  return index;
}

}  // namespace kata
