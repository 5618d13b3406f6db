#include "eval/harness/python_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace kata::harness {

PythonRandom::PythonRandom(uint64_t seed) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32 != 0) key.push_back(static_cast<uint32_t>(seed >> 32));
  state_[0] = 19650218u;
  for (size_t i = 1; i < words; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  size_t i = 1;
  const auto advance = [&] {
    if (++i < words) return;
    state_[0] = state_[words - 1];
    i = 1;
  };
  const auto mixed = [&](uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor);
  };
  for (size_t k = 0; k < std::max(words, key.size()); ++k, advance())
    state_[i] = mixed(1664525u) + key[k % key.size()] + static_cast<uint32_t>(k % key.size());
  for (size_t k = 0; k < words - 1; ++k, advance()) state_[i] = mixed(1566083941u) - static_cast<uint32_t>(i);
  state_[0] = 0x80000000u;
}

void PythonRandom::refill() {
  for (size_t i = 0; i < words; ++i) {
    const uint32_t joined = (state_[i] & 0x80000000u) | (state_[(i + 1) % words] & 0x7fffffffu);
    state_[i] = state_[(i + 397) % words] ^ (joined >> 1) ^ ((joined & 1u) != 0 ? 0x9908b0dfu : 0u);
  }
  used_ = 0;
}

uint32_t PythonRandom::next() {
  if (used_ == words) refill();
  uint32_t x = state_[used_++];
  x ^= x >> 11;
  x ^= (x << 7) & 0x9d2c5680u;
  x ^= (x << 15) & 0xefc60000u;
  return x ^ (x >> 18);
}

double PythonRandom::random() {
  const uint32_t high = next() >> 5, low = next() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

uint32_t PythonRandom::bits(int count) {
  return next() >> (32 - count);
}

uint64_t PythonRandom::below(uint64_t limit) {
  KATA_CHECK(limit > 0 && limit < uint64_t{1} << 32, "limit = {}", limit);
  const auto count = static_cast<int>(std::bit_width(limit));
  uint64_t draw = bits(count);
  while (draw >= limit) draw = bits(count);
  return draw;
}

std::vector<int64_t> PythonRandom::sample(int64_t size, int64_t count) {
  KATA_CHECK(count >= 0 && count <= size, "{} of {}", count, size);
  // Few of many are drawn again where they were taken, others come out of a pool.
  double threshold = 21;
  if (count > 5)
    threshold += std::pow(4, std::ceil(std::log(3.0 * static_cast<double>(count)) / std::log(4.0)));
  std::vector<int64_t> result;
  if (static_cast<double>(size) <= threshold) {
    std::vector<int64_t> pool(static_cast<size_t>(size));
    std::iota(pool.begin(), pool.end(), 0);
    for (int64_t i = 0; i < count; ++i) {
      const size_t j = below(static_cast<uint64_t>(size - i));
      result.push_back(pool[j]);
      pool[j] = pool[static_cast<size_t>(size - i - 1)];
    }
    return result;
  }
  std::unordered_set<int64_t> taken;
  while (static_cast<int64_t>(result.size()) < count) {
    const auto j = static_cast<int64_t>(below(static_cast<uint64_t>(size)));
    if (taken.insert(j).second) result.push_back(j);
  }
  return result;
}

void PythonRandom::shuffle(std::vector<int64_t>& values) {
  for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
}

}  // namespace kata::harness
