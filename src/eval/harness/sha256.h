// SHA-256 (FIPS 180-4): how sample files name documents, prompts and targets.
#pragma once

#include <string>
#include <string_view>

namespace kata::harness {

std::string sha256_hex(std::string_view bytes);  // 64 digits in lower case

}  // namespace kata::harness
