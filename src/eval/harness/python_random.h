// Python's random.Random, number for number: MT19937 (Matsumoto and Nishimura, 1998) seeded by an array of
// words. Bootstraps, the dummy model and needle positions are defined by it (EVAL A.6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kata::harness {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  double random();                              // [0, 1), 53 bits of two outputs
  uint32_t bits(int count);                     // getrandbits(count), 1 to 32
  uint64_t below(uint64_t limit);               // [0, limit); limit < 2^32
  int64_t integer(int64_t low, int64_t high) {  // randint: both ends included
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  // One index of a choice with replacement among `size` (choices draws k of them).
  int64_t index(int64_t size) { return static_cast<int64_t>(random() * static_cast<double>(size)); }
  // sample(range(size), count): distinct, in the order drawn.
  std::vector<int64_t> sample(int64_t size, int64_t count);
  void shuffle(std::vector<int64_t>& values);

 private:
  uint32_t next();
  void refill();

  static constexpr size_t words = 624;
  std::array<uint32_t, words> state_;
  size_t used_ = words;
};

}  // namespace kata::harness
