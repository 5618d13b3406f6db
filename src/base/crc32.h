// CRC-32 as in zip, PNG and Ethernet: polynomial 0x04C11DB7 reflected, start and final xor all ones.
//
// Guards files against torn writes and flipped bits (any burst up to 32 bits, and any single bit anywhere, is
// found); it is no protection against someone who wants to deceive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kata {

class Crc32 {
 public:
  void update(const void* data, size_t bytes);
  uint32_t value() const { return ~state_; }  // of everything so far; 0 for nothing

 private:
  uint32_t state_ = ~uint32_t{0};
};

uint32_t crc32(const void* data, size_t bytes);
inline uint32_t crc32(std::string_view text) {
  return crc32(text.data(), text.size());
}
std::string crc32_text(uint32_t value);  // eight lower-case hexadecimal digits

}  // namespace kata
