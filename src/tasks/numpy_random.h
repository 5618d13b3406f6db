// The generator of NumPy's legacy RandomState, number for number: MT19937 (Matsumoto and Nishimura, 1998)
// seeded by one 32-bit word. Published synthetic data sets are defined by it.
#pragma once

#include <array>
#include <cstdint>

namespace kata {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed);

  uint32_t next() {
    if (used_ == words) refill();
    return output_[used_++];
  }
  // In [0, 1), 53 bits from two outputs.
  double uniform() {
    const uint32_t high = next() >> 5, low = next() >> 6;
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  // In [0, limit]: outputs under the smallest mask that covers limit are drawn until one fits; 0 draws
  // nothing.
  uint32_t bounded(uint32_t limit);
  // order[i] for i = size - 1 .. 1 is exchanged with order[bounded(i)]; only the first `keep` entries of
  // order are valid afterwards. size <= 2^24.
  void shuffle(uint32_t* order, uint32_t size, uint32_t keep);

 private:
  static constexpr uint32_t words = 624;
  void refill();

  std::array<uint32_t, words> state_;
  std::array<uint32_t, words> output_;
  uint32_t used_ = words;
};

}  // namespace kata
