#include "base/crc32.h"

#include <array>
#include <bit>
#include <cstring>
#include <spdlog/fmt/fmt.h>

namespace kata {

namespace {

// The main loop and every file format of this project read memory as it lies.
static_assert(std::endian::native == std::endian::little, "little-endian machines only");

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the remainder of byte b followed by k zero bytes, so that eight bytes are eight look-ups.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t remainder = b;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ (remainder & 1 ? 0xEDB88320u : 0u);
    tables[0][b] = remainder;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b)
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xFF];
  return tables;
}

constexpr Tables tables = make_tables();

}  // namespace

void Crc32::update(const void* data, size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t state = state_;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= tables[7 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; bytes > 0; --bytes, ++p) state = (state >> 8) ^ tables[0][(state ^ *p) & 0xFF];
  state_ = state;
}

uint32_t crc32(const void* data, size_t bytes) {
  Crc32 crc;
  crc.update(data, bytes);
  return crc.value();
}

std::string crc32_text(uint32_t value) {
  return fmt::format("{:08x}", value);
}

}  // namespace kata
