// What a sentencepiece model file must be before its library sees it.
//
// It is a protocol buffer: fields of a key (number and wire type) and a value. At the top stand the pieces
// (1), the trainer's settings (2), the normaliser's (3), test cases (4) and the denormaliser's settings (5).
#pragma once

#include <string>
#include <string_view>

namespace kata {

// ExitCode::data: "PATH: REASON; expected a sentencepiece model, ...".
[[noreturn]] void refuse_sentencepiece(const std::string& path, const std::string& reason);

// Refuses what is cut short or no such file at all, and normalisation tables that would send the library,
// which trusts them, out of its memory. The pieces themselves are left to the library.
void check_sentencepiece_layout(std::string_view bytes, const std::string& path);

}  // namespace kata
