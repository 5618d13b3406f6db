#include "data/word_scanner.h"

#include <array>
#include <cstdint>
#include <vector>

#include "data/unicode.h"
#include "data/utf8.h"

namespace kata {

namespace {

enum Class : uint8_t { letter, number, space, other };  // \p{L}, \p{N}, \s and the rest

Class find_class(char32_t c) {
  return is_letter(c) ? letter : is_number(c) ? number : is_white_space(c) ? space : other;
}

Class class_of(char32_t c) {
  static const std::vector<Class> table = [] {
    std::vector<Class> made;
    for (char32_t i = 0; i < 0x10000; ++i) made.push_back(find_class(i));
    return made;
  }();
  return c < table.size() ? table[c] : find_class(c);
}

struct Character {
  char32_t value = 0;
  Class kind = other;
  size_t end = 0;  // where it begins, at the text's end
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool done(size_t at) const { return at >= text_.size(); }
  Character at(size_t at) const {
    if (done(at)) return {0, other, at};
    const CodePoint point = code_point_at(text_, at);
    return {point.value, class_of(point.value), at + point.bytes};
  }
  // Whether a character of the class stands there.
  bool is(size_t place, Class kind) const { return !done(place) && at(place).kind == kind; }
  // The end of a run of the class.
  size_t run(size_t place, Class kind) const {
    while (!done(place)) {
      const Character c = at(place);
      if (c.kind != kind) break;
      place = c.end;
    }
    return place;
  }
  size_t line_ends(size_t place) const {
    while (!done(place) && is_line_end(static_cast<unsigned char>(text_[place]))) ++place;
    return place;
  }
  static bool is_line_end(char32_t c) { return c == '\r' || c == '\n'; }

  // The end of 's, 't, 're, 've, 'm, 'll or 'd, or `place`. U+017F is a small s to an expression that ignores
  // case.
  size_t contraction(size_t place, bool ignore_case) const {
    if (text_[place] != '\'') return place;
    const size_t next = place + 1;
    if (ignore_case && text_.substr(next).starts_with("\xc5\xbf")) return next + 2;
    const auto lower = [&](size_t i) {
      const char c = i < text_.size() ? text_[i] : '\0';
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char a = lower(next), b = lower(next + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return next + 1;
    return (b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l') ? next + 2 : place;
  }

  // \s+(?!\S)|\s+ where white space stands: a run leaves its last character to the word behind it.
  size_t blanks(size_t place) const {
    size_t last = place, end = place;
    while (is(end, space)) {
      last = end;
      end = at(end).end;
    }
    return done(end) || last == place ? end : last;
  }

 private:
  std::string_view text_;
};

}  // namespace

std::optional<WordScanner> WordScanner::of(std::string_view expression) {
  WordScanner scanner;
  if (expression == gpt2) return scanner;
  scanner.later_ = true;
  scanner.digits_ = expression == llama3 ? 3 : 1;
  if (expression == llama3 || expression == qwen) return scanner;
  return std::nullopt;
}

size_t WordScanner::word_end(std::string_view text, size_t at) const {
  return later_ ? later_end(text, at) : gpt2_end(text, at);
}

size_t WordScanner::gpt2_end(std::string_view text, size_t at) const {
  const Reader reader(text);
  if (const size_t end = reader.contraction(at, false); end > at) return end;
  const Character first = reader.at(at);
  if (first.kind != space) return reader.run(first.end, first.kind);
  if (first.value == ' ' && !reader.done(first.end)) {
    const Character next = reader.at(first.end);
    if (next.kind != space) return reader.run(next.end, next.kind);
  }
  return reader.blanks(at);
}

size_t WordScanner::later_end(std::string_view text, size_t at) const {
  const Reader reader(text);
  if (const size_t end = reader.contraction(at, true); end > at) return end;
  const Character first = reader.at(at);
  if (first.kind == letter) return reader.run(first.end, letter);
  if (first.kind == number) {
    size_t end = first.end;
    for (int i = 1; i < digits_ && reader.is(end, number); ++i) end = reader.at(end).end;
    return end;
  }
  if (!Reader::is_line_end(first.value) && reader.is(first.end, letter)) return reader.run(first.end, letter);
  if (first.kind == other) return reader.line_ends(reader.run(first.end, other));
  if (first.value == ' ' && reader.is(first.end, other))
    return reader.line_ends(reader.run(first.end, other));
  size_t line_end = at;  // behind the last line end of the white space
  for (size_t i = at; reader.is(i, space);) {
    const Character c = reader.at(i);
    i = c.end;
    if (Reader::is_line_end(c.value)) line_end = i;
  }
  return line_end > at ? line_end : reader.blanks(at);
}

}  // namespace kata
