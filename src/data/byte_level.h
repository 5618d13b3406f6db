// The characters that stand for bytes in byte-level vocabularies (GPT-2 and its heirs).
#pragma once

#include <string>
#include <string_view>

namespace kata {

// Printable bytes of Latin-1 stand for themselves, the others for U+0100 and on, in their order.
const std::string& byte_level_character(unsigned char byte);  // in UTF-8
std::string to_byte_level(std::string_view bytes);
// The bytes that the characters stand for; where one stands for none, the text as it is.
std::string from_byte_level(std::string_view text);

}  // namespace kata
