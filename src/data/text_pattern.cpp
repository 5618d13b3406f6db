#include "data/text_pattern.h"

#include <algorithm>

#include "data/utf8.h"

namespace kata {

namespace {

constexpr const char* differing_escapes = "bBhHGKRXQENyYgk";

// Whether the closing brace at i ends a count such as {2,3}.
bool ends_count(const std::string& pattern, size_t i) {
  size_t k = i;
  while (k > 0 && (pattern[k - 1] == ',' || (pattern[k - 1] >= '0' && pattern[k - 1] <= '9'))) --k;
  return k < i && k > 0 && pattern[k - 1] == '{';
}

// What Oniguruma's Ruby syntax and ICU read differently at i, or an empty string.
std::string difference_at(const std::string& pattern, size_t i, bool in_set) {
  const auto next = [&](size_t k) { return i + k < pattern.size() ? pattern[i + k] : '\0'; };
  if (pattern[i] == '\\' && next(1) != '\0' &&
      std::string_view(differing_escapes).find(next(1)) != std::string_view::npos)
    return fmt::format("\\{}", next(1));
  if (in_set) return "";
  if (pattern[i] == '}' && next(1) == '+' && ends_count(pattern, i)) return "a + behind a count";
  if (pattern[i] != '(' || next(1) != '?') return "";
  if (next(2) != '\0' && std::string_view(":=!><").find(next(2)) != std::string_view::npos) return "";
  size_t k = 2;
  while (next(k) == 'i' || next(k) == '-') ++k;
  if (next(k) == ':' || (next(k) == ')' && i == 0)) return "";
  return fmt::format("the group {}", next(2) == '#' ? "(?#" : "(?" + std::string(1, next(2)));
}

void check_syntax(const std::string& pattern, const JsonView& value) {
  int sets = 0;  // open brackets
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string difference = difference_at(pattern, i, sets > 0);
    if (!difference.empty())
      value.refuse(difference +
                   " means different things to different libraries of regular expressions and is not read");
    if (pattern[i] == '[') ++sets;
    if (pattern[i] == ']' && sets > 0) --sets;
    if (pattern[i] == '\\') ++i;
  }
}

}  // namespace

Cut read_cut(const JsonView& value) {
  return static_cast<Cut>(
      value.choice({"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

void cut_parts(const std::vector<Part>& parts, Cut cut, std::vector<Span>& result) {
  const size_t first = result.size();
  bool before = false;  // was the part before a match?
  const auto join = [&](const Part& part) {
    if (cut == Cut::contiguous) return part.match == before;
    return (cut == Cut::merged_with_previous || cut == Cut::merged_with_next) && part.match && !before;
  };
  const auto take = [&](const Part& part) {
    if (cut == Cut::removed && part.match) return;
    if (result.size() > first && join(part)) {
      result.back() = {std::min(result.back().begin, part.begin), std::max(result.back().end, part.end)};
    } else {
      result.push_back({part.begin, part.end});
    }
    before = part.match;
  };
  if (cut == Cut::merged_with_next) {
    std::for_each(parts.rbegin(), parts.rend(), take);
    std::reverse(result.begin() + static_cast<int64_t>(first), result.end());
  } else {
    std::for_each(parts.begin(), parts.end(), take);
  }
  const auto empty = [](const Span& span) { return span.begin == span.end; };
  result.erase(std::remove_if(result.begin() + static_cast<int64_t>(first), result.end(), empty),
               result.end());
}

TextPattern TextPattern::read(const JsonView& value) {
  value.only({"String", "Regex"});
  const auto text = value.find("String"), expression = value.find("Regex");
  if (text.has_value() == expression.has_value()) value.refuse("expected one of String, Regex");
  if (text) {
    if (text->string().empty()) text->refuse("an empty string, expected what to look for");
    return literal(text->string());
  }
  if (const auto scanner = WordScanner::of(expression->string())) return words(*scanner);
  check_syntax(expression->string(), *expression);
  try {
    return regex(expression->string(), expression->where());
  } catch (const RegexError& error) {
    expression->refuse(fmt::format("no regular expression that is understood here: {}", error.what()));
  }
}

TextPattern TextPattern::literal(std::string text) {
  TextPattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

TextPattern TextPattern::regex(const std::string& expression, const std::string& name) {
  TextPattern pattern;
  pattern.regex_.emplace(expression, name);
  return pattern;
}

TextPattern TextPattern::words(WordScanner scanner) {
  TextPattern pattern;
  pattern.words_ = scanner;
  return pattern;
}

TextPattern TextPattern::character(bool (*is_match)(char32_t)) {
  TextPattern pattern;
  pattern.is_match_ = is_match;
  return pattern;
}

void TextPattern::find(std::string_view text, const std::vector<Span>& spans,
                       const std::function<void(size_t, Span)>& found) const {
  if (regex_) return regex_->find(text, spans, found);
  for (size_t i = 0; i < spans.size(); ++i) {
    const std::string_view part = text.substr(0, spans[i].end);
    for (size_t at = spans[i].begin; at < part.size();) {
      if (words_) {
        const size_t end = words_->word_end(part, at);
        found(i, {at, end});
        at = end;
      } else if (is_match_ != nullptr) {
        const CodePoint point = code_point_at(part, at);
        if (is_match_(point.value)) found(i, {at, at + point.bytes});
        at += point.bytes;
      } else {
        at = part.find(literal_, at);
        if (at == std::string_view::npos) break;
        found(i, {at, at + literal_.size()});
        at += literal_.size();
      }
    }
  }
}

void TextPattern::parts(std::string_view text, const std::vector<Span>& spans,
                        const std::function<void(size_t, std::vector<Part>&)>& take) const {
  std::vector<Part> parts;
  size_t current = 0;  // the span that `parts` is about
  const auto finish = [&] {
    const size_t done = parts.empty() ? spans[current].begin : parts.back().end;
    if (done < spans[current].end) parts.push_back({done, spans[current].end, false});
    take(current++, parts);
    parts.clear();
  };
  find(text, spans, [&](size_t i, Span match) {
    while (current < i) finish();
    const size_t done = parts.empty() ? spans[i].begin : parts.back().end;
    if (done < match.begin) parts.push_back({done, match.begin, false});
    parts.push_back({match.begin, match.end, true});
  });
  while (current < spans.size()) finish();
}

std::string TextPattern::replace(std::string_view text, std::string_view content,
                                 void (*check)(size_t before, size_t now)) const {
  std::string result;
  size_t done = 0;
  find(text, {{0, text.size()}}, [&](size_t, Span match) {
    result += text.substr(done, match.begin - done);
    result += content;
    check(text.size(), result.size());
    done = match.end;
  });
  return result += text.substr(done);
}

}  // namespace kata
