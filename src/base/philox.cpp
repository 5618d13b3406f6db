#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace kata {

std::array<uint32_t, 4> Philox::block(uint64_t index) const {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                               static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed_), k1 = static_cast<uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

uint64_t Philox::bits(uint64_t index) const {
  const auto b = block(index);
  return (static_cast<uint64_t>(b[1]) << 32) | b[0];
}

double Philox::uniform(uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

double Philox::normal(uint64_t index) const {
  const auto b = block(index);
  const uint64_t first = (static_cast<uint64_t>(b[1]) << 32) | b[0];
  const uint64_t second = (static_cast<uint64_t>(b[3]) << 32) | b[2];
  const double u = (static_cast<double>(first >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double v = static_cast<double>(second >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

uint64_t Philox::below(uint64_t index, uint64_t n) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * n) >> 64);
}

}  // namespace kata
