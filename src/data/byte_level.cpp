#include "data/byte_level.h"

#include <array>

#include "data/utf8.h"

namespace kata {

namespace {

constexpr size_t alphabet_end = 0x144;  // code points in use are below

bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, alphabet_end> bytes{};  // of a code point, -1: none

  Alphabet() {
    bytes.fill(-1);
    char32_t free = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t c = stands_for_itself(byte) ? byte : free++;
      append_code_point(characters[byte], c);
      bytes[c] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

const std::string& byte_level_character(unsigned char byte) {
  return alphabet().characters[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 5 / 4);
  for (const char byte : bytes) text += byte_level_character(static_cast<unsigned char>(byte));
  return text;
}

std::string from_byte_level(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const int byte = point.bytes > 0 && point.value < alphabet_end ? alphabet().bytes[point.value] : -1;
    if (byte < 0) return std::string(text);
    bytes += static_cast<char>(byte);
    at += point.bytes;
  }
  return bytes;
}

}  // namespace kata
