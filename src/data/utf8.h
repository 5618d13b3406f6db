// UTF-8, a code point at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kata {

struct CodePoint {
  char32_t value = 0;
  size_t bytes = 0;  // 0: the byte there begins no character (overlong, surrogate, cut short)
};

CodePoint code_point_at(std::string_view text, size_t at);
void append_code_point(std::string& text, char32_t value);

// Of valid text: where the character before `at` begins; at > 0.
size_t previous_character(std::string_view text, size_t at);

bool is_utf8(std::string_view text);
// Each byte that belongs to no character becomes U+FFFD, as in the sentencepiece library.
std::string repaired_utf8(std::string_view text);

}  // namespace kata
