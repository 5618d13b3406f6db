// The bytes of a config file before they are parsed, and how they are quoted in messages.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace kata {

constexpr size_t config_size_limit = size_t{1} << 20;  // bytes of one file

struct TextFault {
  int line = 0, column = 0;  // from 1; 0 = the whole text
  std::string what;
};

// Bytes that no config contains (binary data, broken UTF-8, more than the size limit, hundreds of brackets
// one in the other), found before a parser meets them.
std::optional<TextFault> find_text_fault(const std::string& text);

// The file's bytes, at most one more than the limit. ExitCode::usage when there is no such readable file.
std::string read_config_text(const std::string& path);

// `text` on one line: control characters as \xNN.
std::string printable(const std::string& text);
// The same, with the middle of a long text left out.
std::string shortened(const std::string& text);

}  // namespace kata
