#include "data/utf8.h"

#include <cstdint>

namespace kata {

namespace {

// Where the ASCII that begins at `at` ends.
size_t end_of_ascii(std::string_view text, size_t at) {
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1};
  const size_t size = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (size == 0 || size > text.size() - at) return {};
  char32_t value = first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(at + i) & 0x3Fu);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  if (overlong || (value >= 0xD800 && value < 0xE000) || value > 0x10FFFF) return {};
  return {value, size};
}

void append_code_point(std::string& text, char32_t value) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | value >> 6);
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
  }
  put(0x80 | (value & 0x3F));
}

size_t previous_character(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool is_utf8(std::string_view text) {
  for (size_t at = end_of_ascii(text, 0); at < text.size(); at = end_of_ascii(text, at)) {
    const CodePoint point = code_point_at(text, at);
    if (point.bytes == 0) return false;
    at += point.bytes;
  }
  return true;
}

std::string repaired_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.bytes > 0)
      repaired += text.substr(at, point.bytes);
    else
      append_code_point(repaired, 0xFFFD);
    at += point.bytes > 0 ? point.bytes : 1;
  }
  return repaired;
}

}  // namespace kata
