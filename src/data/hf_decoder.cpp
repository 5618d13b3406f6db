#include "data/hf_decoder.h"

#include <charconv>
#include <memory>
#include <optional>

#include "data/byte_level.h"
#include "data/hf_metaspace.h"
#include "data/hf_normalizer.h"
#include "data/text_pattern.h"
#include "data/utf8.h"

namespace kata {

namespace {

void join(std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  pieces.assign(1, std::move(text));
}

// The byte that <0x0A> spells.
std::optional<char> spelt_byte(const std::string& piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
  if (error != std::errc() || end != piece.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

// Pieces that spell bytes, next to each other, become one.
void join_bytes(std::vector<std::string>& pieces, bool) {
  std::vector<std::string> result;
  bool before = false;  // is the last of the result made of bytes?
  for (std::string& piece : pieces) {
    const std::optional<char> byte = spelt_byte(piece);
    if (byte && before)
      result.back() += *byte;
    else
      result.push_back(byte ? std::string(1, *byte) : std::move(piece));
    before = byte.has_value();
  }
  pieces = std::move(result);
}

// Applies a change to the stretches of a piece that are valid UTF-8.
template <class Change>
std::string change_text(const std::string& piece, Change&& change) {
  if (is_utf8(piece)) return change(piece);
  std::string result;
  size_t begin = 0;
  for (size_t at = 0; at < piece.size();) {
    const size_t bytes = code_point_at(piece, at).bytes;
    if (bytes == 0) {
      if (begin < at) result += change(piece.substr(begin, at - begin));
      result += piece[at];
      begin = at + 1;
    }
    at += bytes == 0 ? 1 : bytes;
  }
  if (begin < piece.size()) result += change(piece.substr(begin));
  return result;
}

// At most `start` copies of the character off the front and `stop` off the end.
std::string stripped(std::string_view piece, const std::string& content, int64_t start, int64_t stop) {
  for (; start > 0 && piece.starts_with(content); --start) piece.remove_prefix(content.size());
  for (; stop > 0 && piece.ends_with(content); --stop) piece.remove_suffix(content.size());
  return std::string(piece);
}

}  // namespace

HfDecoder::HfDecoder(const JsonView& value) : given_(!value.is_null()) {
  if (given_) add(value);
}

std::string HfDecoder::decode(std::vector<std::string> pieces, bool inside) const {
  if (!given_) {
    std::string text;
    for (size_t i = 0; i < pieces.size(); ++i) text += (i > 0 || inside ? " " : "") + pieces[i];
    return text;
  }
  const auto bytes = [&] {
    size_t sum = 0;
    for (const std::string& piece : pieces) sum += piece.size();
    return sum;
  };
  const size_t size = bytes();
  for (const Step& step : steps_) {
    step(pieces, inside);
    check_growth(size, bytes());
  }
  join(pieces);
  return pieces[0];
}

void HfDecoder::add(const JsonView& value) {
  check_steps(steps_.size(), value);
  enum Kind { byte_level, metaspace, byte_fallback, fuse, strip, replace, sequence };
  const auto kind = static_cast<Kind>(value.at("type").choice(
      {"ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Strip", "Replace", "Sequence"}));
  switch (kind) {
    case byte_level:
      value.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) value.boolean(key, true);
      steps_.push_back([](std::vector<std::string>& pieces, bool) {
        for (std::string& piece : pieces) piece = from_byte_level(piece);
        join(pieces);
      });
      joined_ = true;
      break;
    case metaspace:
      add_metaspace(value);
      break;
    case byte_fallback:
      value.only({"type"});
      steps_.push_back(join_bytes);
      break;
    case fuse:
      value.only({"type"});
      steps_.push_back([](std::vector<std::string>& pieces, bool) { join(pieces); });
      joined_ = true;
      break;
    case strip:
      add_strip(value);
      break;
    case replace:
      add_replace(value);
      break;
    case sequence: {
      value.only({"type", "decoders"});
      const JsonView list = value.at("decoders");
      for (size_t i = 0; i < list.size(); ++i) add(list.at(i));
    }
  }
}

void HfDecoder::add_metaspace(const JsonView& value) {
  const Metaspace space = read_metaspace(value);
  const auto blank = std::make_shared<const TextPattern>(TextPattern::literal(space.replacement));
  steps_.push_back([space, blank](std::vector<std::string>& pieces, bool inside) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool at_start = i == 0 && !inside && space.prepend != Metaspace::never;
      pieces[i] = blank->replace(pieces[i], at_start ? "" : " ", check_growth);
    }
  });
}

void HfDecoder::add_strip(const JsonView& value) {
  value.only({"type", "content", "start", "stop"});
  const JsonView content = value.at("content");
  const std::string& text = content.string();
  if (text.empty() || code_point_at(text, 0).bytes != text.size()) content.refuse("expected one character");
  const int64_t start = value.at("start").integer(0, INT32_MAX),
                stop = value.at("stop").integer(0, INT32_MAX);
  steps_.push_back([=, of_whole = joined_](std::vector<std::string>& pieces, bool inside) {
    if (of_whole && inside) return;
    for (std::string& piece : pieces) piece = stripped(piece, text, start, stop);
  });
}

void HfDecoder::add_replace(const JsonView& value) {
  value.only({"type", "pattern", "content"});
  const auto pattern = std::make_shared<const TextPattern>(TextPattern::read(value.at("pattern")));
  const std::string content = value.at("content").short_string();
  steps_.push_back([=](std::vector<std::string>& pieces, bool) {
    for (std::string& piece : pieces)
      piece = change_text(
          piece, [&](const std::string& text) { return pattern->replace(text, content, check_growth); });
  });
}

}  // namespace kata
