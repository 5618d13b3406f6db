#include "config/config_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/stat.h>

#include "base/error.h"

namespace kata {
namespace {

unsigned char byte_at(const std::string& text, size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

bool control(unsigned char c) {
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
}

// Length of the UTF-8 character at i, 0 where the bytes are none (overlong forms and surrogates included).
size_t utf8_length(const std::string& text, size_t i) {
  const unsigned char lead = byte_at(text, i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  for (size_t j = 1; j < length; ++j)
    if ((byte_at(text, i + j) & 0xc0) != 0x80) return 0;
  const unsigned char second = byte_at(text, i + 1);
  const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
  const bool beyond = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : length;
}

}  // namespace

std::optional<TextFault> find_text_fault(const std::string& text) {
  if (text.size() > config_size_limit)
    return TextFault{0, 0, fmt::format("larger than {} bytes; this is not a config", config_size_limit)};
  // Brackets in comments and quotes count as well: the limit is far above what anybody writes.
  constexpr int bracket_limit = 200;
  int line = 1, column = 1, brackets = 0;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = byte_at(text, i);
    const size_t length = utf8_length(text, i);
    if (length == 0 || control(c))
      return TextFault{line, column,
                       fmt::format("byte 0x{:02x} is not text; expected YAML in UTF-8", static_cast<int>(c))};
    if (c == '[' || c == '{') ++brackets;
    if ((c == ']' || c == '}') && brackets > 0) --brackets;
    if (brackets > bracket_limit)
      return TextFault{line, column, fmt::format("more than {} open brackets", bracket_limit)};
    i += length;
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
  return std::nullopt;
}

std::string read_config_text(const std::string& path) {
  const std::string name = printable(path);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    fail(ExitCode::usage, "{}: cannot open the config: {}", name, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail(ExitCode::usage, "{}: is a folder; expected a YAML file", name);
  if (!S_ISREG(status.st_mode))
    fail(ExitCode::usage, "{}: is not a regular file; expected a YAML file", name);
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ExitCode::usage, "{}: cannot open the config: {}", name, std::strerror(errno));
  std::string text(std::min(static_cast<size_t>(status.st_size), config_size_limit) + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail(ExitCode::usage, "{}: cannot read the config: {}", name, std::strerror(errno));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

std::string printable(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const unsigned char c = byte_at(text, i);
    const size_t length = utf8_length(text, i);
    if (length == 0 || control(c) || c == '\n' || c == '\r' || c == '\t') {
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

std::string shortened(const std::string& text) {
  constexpr size_t limit = 160, head = 120, tail = 30;
  if (text.size() <= limit) return printable(text);
  const auto continues = [&](size_t i) { return (byte_at(text, i) & 0xc0) == 0x80; };
  size_t left = head, right = text.size() - tail;
  while (left > head - 4 && continues(left)) --left;  // not inside a character
  while (right < text.size() - tail + 4 && continues(right)) ++right;
  return printable(text.substr(0, left)) + "..." + printable(text.substr(right));
}

}  // namespace kata
