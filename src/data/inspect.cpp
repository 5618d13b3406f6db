#include "data/inspect.h"

#include <algorithm>
#include <cstring>

#include "base/safetensors.h"
#include "data/npz.h"
#include "data/shard.h"

namespace kata {

namespace {

constexpr size_t shown_numbers = 16, shown_text_tokens = 160;

std::string joined_numbers(const std::vector<int64_t>& values, const char* between) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : between) + std::to_string(value);
  return text;
}

// The numbers, and dots where there are more of them.
std::string beginning(std::vector<int64_t> values, uint64_t all) {
  if (values.size() > shown_numbers) values.resize(shown_numbers);
  return joined_numbers(values, " ") + (values.size() < all ? " ..." : "");
}

// Length of the UTF-8 character that starts there, 0 where none does.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

// ---- token shards ----

std::string inspect_shard(const std::string& path, const Tokenizer& tokenizer) {
  const Shard shard(path);
  const Shard::Ids ids = shard.ids();
  const bool known = int64_t{ids.largest} < tokenizer.vocab();
  std::string out =
      fmt::format("{}: token shard, {} uint{} tokens, {} bytes\n  ids    {} to {}\n", path, shard.tokens(),
                  8 * shard.token_bytes(), shard_header_bytes + shard.tokens() * shard.token_bytes(),
                  ids.smallest, ids.largest);
  if (ids.largest > INT32_MAX) return out + "  the ids of this shard are too large for any tokenizer\n";
  std::vector<int32_t> tokens(static_cast<size_t>(std::min<int64_t>(shown_text_tokens, shard.tokens())));
  shard.read(0, static_cast<int64_t>(tokens.size()), tokens.data());
  out += fmt::format("  first  {}\n",
                     beginning({tokens.begin(), tokens.end()}, static_cast<uint64_t>(shard.tokens())));
  if (!known)
    return out + fmt::format("  text   not shown: there are ids beyond the {} of the tokenizer \"{}\"\n",
                             tokenizer.vocab(), tokenizer.name());
  return out + fmt::format("  text   {}\n", quoted_line(tokenizer.decode(tokens)));
}

// ---- .npz ----

std::string inspect_integers(const NpzFile::Entry& entry) {
  std::vector<int64_t> values(entry.bytes.size() / sizeof(int64_t));
  if (values.empty()) return "";
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format(", {} to {}\n    first  {}", *low, *high, beginning(values, values.size()));
}

// UCS-4, padded with zeros.
std::string inspect_word(const NpzFile::Entry& entry) {
  std::string text;
  for (size_t i = 0; i + 4 <= entry.bytes.size(); i += 4) {
    uint32_t c;
    std::memcpy(&c, entry.bytes.data() + i, sizeof c);
    if (c != 0) text += c < 0x80 ? static_cast<char>(c) : '?';
  }
  return ", " + quoted_line(text);
}

std::string inspect_npz(const std::string& path) {
  const NpzFile file(path);
  std::string out = fmt::format("{}: NumPy archive, {} arrays\n", path, file.entries().size());
  for (const NpzFile::Entry& entry : file.entries()) {
    out += fmt::format("  {}  {} [{}]", entry.name, entry.dtype, joined_numbers(entry.shape, ", "));
    if (entry.dtype == "<i8") out += inspect_integers(entry);
    if (entry.dtype.starts_with("<U") && entry.shape.empty()) out += inspect_word(entry);
    out += '\n';
  }
  return out;
}

// ---- .safetensors ----

std::string inspect_safetensors(const std::string& path) {
  const SafetensorsFile file(path);
  std::string out = fmt::format("{}: safetensors, {} tensors\n", path, file.names().size());
  for (const auto& [key, value] : file.metadata())
    out += fmt::format("  {} = {}\n", quoted_line(key), quoted_line(value));
  for (const std::string& name : file.names()) {
    const TensorInfo& info = file.info(name);
    out += fmt::format("  {}  {} {}, {} bytes\n", name, info.dtype, info.shape_text(), info.end - info.begin);
  }
  return out;
}

enum class Kind { shard, npz, safetensors, unknown };

Kind kind_of(const std::string& path) {
  if (path.ends_with(".bin")) return Kind::shard;
  if (path.ends_with(".npz")) return Kind::npz;
  if (path.ends_with(".safetensors")) return Kind::safetensors;
  const InputFile file(path);
  std::string start(std::min<uint64_t>(9, file.size()), '\0');
  file.read_at(0, start.data(), start.size());
  if (is_shard_start(start)) return Kind::shard;
  if (start.starts_with("PK\x03\x04")) return Kind::npz;
  if (start.size() == 9 && start[8] == '{') return Kind::safetensors;
  return Kind::unknown;
}

}  // namespace

std::string quoted_line(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (text[0] == '\n')
      out += "\\n";
    else if (text[0] == '\t')
      out += "\\t";
    else if (text[0] == '"' || text[0] == '\\')
      out += std::string("\\") + text[0];
    else if (length == 0 || byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + '"';
}

std::string inspect(const std::string& path, const Tokenizer& tokenizer) {
  switch (kind_of(path)) {
    case Kind::shard:
      return inspect_shard(path, tokenizer);
    case Kind::npz:
      return inspect_npz(path);
    case Kind::safetensors:
      return inspect_safetensors(path);
    case Kind::unknown:
      break;
  }
  fail(ExitCode::data,
       "{}: expected a token shard (.bin), a NumPy archive (.npz) or a .safetensors file; text becomes a "
       "shard by katadata tokenize",
       path);
}

}  // namespace kata
