#include "tasks/numpy_random.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace kata {

namespace {

constexpr uint32_t middle = 397;

// One step of the recurrence: the top bit of a with the low bits of b, times the matrix, onto c.
uint32_t twist(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t joined = (a & 0x80000000u) | (b & 0x7fffffffu);
  return c ^ (joined >> 1) ^ ((0u - (b & 1u)) & 0x9908b0dfu);
}

uint32_t temper(uint32_t x) {
  x ^= x >> 11;
  x ^= (x << 7) & 0x9d2c5680u;
  x ^= (x << 15) & 0xefc60000u;
  return x ^ (x >> 18);
}

}  // namespace

NumpyRandom::NumpyRandom(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < words; ++i) state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
}

void NumpyRandom::refill() {
  uint32_t* s = state_.data();
  // Each loop reads and writes at distances that let the compiler vectorise it.
  for (uint32_t i = 0; i < words - middle; ++i) s[i] = twist(s[i], s[i + 1], s[i + middle]);
  for (uint32_t i = words - middle; i < words - 1; ++i) s[i] = twist(s[i], s[i + 1], s[i + middle - words]);
  s[words - 1] = twist(s[words - 1], s[0], s[middle - 1]);
  for (uint32_t i = 0; i < words; ++i) output_[i] = temper(s[i]);
  used_ = 0;
}

uint32_t NumpyRandom::bounded(uint32_t limit) {
  if (limit == 0) return 0;
  const uint32_t mask = 0xffffffffu >> std::countl_zero(limit);
  uint32_t draw = next() & mask;
  while (draw > limit) draw = next() & mask;
  return draw;
}

// A shuffle of thousands of entries is drawn for every row of a data set, and half of the draws under a mask
// can be rejected at random, so the branch of bounded() would be mispredicted all the time. Here a rejected
// draw costs the same as an accepted one: it is written to `drawn` and overwritten by the next.
void NumpyRandom::shuffle(uint32_t* order, uint32_t size, uint32_t keep) {
  KATA_CHECK(size <= 1u << 24, "size = {}", size);
  constexpr uint32_t chunk = 256;
  std::array<uint32_t, chunk + 1> drawn;  // indices for i = top, top - 1, ...
  uint32_t i = size == 0 ? 0 : size - 1;
  while (i > 0) {
    // All of this chunk share one mask: they end above the next lower power of two.
    const uint32_t mask = 0xffffffffu >> std::countl_zero(i);
    const uint32_t count = std::min(chunk, i - (mask >> 1));
    uint32_t accepted = 0;
    while (accepted < count) {
      if (used_ == words) refill();
      const uint32_t tries = std::min(words - used_, count - accepted);
      const uint32_t* source = output_.data() + used_;
      for (uint32_t t = 0; t < tries; ++t) {
        const uint32_t draw = source[t] & mask;
        drawn[accepted] = draw;
        accepted += draw <= i - accepted;
      }
      used_ += tries;
    }
    for (uint32_t a = 0; a < count; ++a, --i) {
      const uint32_t j = drawn[a];
      const uint32_t moved = order[j];
      order[j] = order[i];
      if (i < keep) order[i] = moved;
    }
  }
}

}  // namespace kata
