// Patterns, and what a text is cut into where they match: the Pattern and SplitDelimiterBehavior of
// tokenizer.json.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/json_view.h"
#include "data/unicode.h"
#include "data/word_scanner.h"

namespace kata {

enum class Cut { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Cut read_cut(const JsonView& value);

// A part of a text: a match, or what lies between two.
struct Part {
  size_t begin = 0, end = 0;
  bool match = false;
};

// The parts as they stay, joined as `cut` says; empty ones are left out.
void cut_parts(const std::vector<Part>& parts, Cut cut, std::vector<Span>& result);

class TextPattern {
 public:
  // {"String": "x"}: x itself; {"Regex": "x+"}: an expression in the syntax of Oniguruma, as far as it means
  // the same to ICU; what may differ is refused.
  static TextPattern read(const JsonView& value);
  static TextPattern literal(std::string text);
  static TextPattern regex(const std::string& pattern, const std::string& name);
  static TextPattern words(WordScanner scanner);
  static TextPattern character(bool (*is_match)(char32_t));  // each such character is a match

  // Each span is a text of its own (see Regex::find): calls take(index of the span, its parts in order).
  void parts(std::string_view text, const std::vector<Span>& spans,
             const std::function<void(size_t, std::vector<Part>&)>& take) const;
  // The text with every match replaced. `check` may object to the size, and is asked now and then.
  std::string replace(std::string_view text, std::string_view content,
                      void (*check)(size_t before, size_t now)) const;

 private:
  TextPattern() = default;
  void find(std::string_view text, const std::vector<Span>& spans,
            const std::function<void(size_t, Span)>& found) const;

  std::string literal_;
  std::optional<Regex> regex_;
  std::optional<WordScanner> words_;
  bool (*is_match_)(char32_t) = nullptr;
};

}  // namespace kata
