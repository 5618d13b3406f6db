#include "eval/harness/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#if KATA_ICU
#include <unicode/ucasemap.h>
#include <unicode/uchar.h>
#include <unicode/ustring.h>
#endif

#include "base/error.h"
#include "data/utf8.h"

namespace kata::harness {

namespace {

// A byte that is no character counts as one of its own; such text is refused before it comes here.
CodePoint next_point(std::string_view text, size_t at) {
  const CodePoint point = code_point_at(text, at);
  return point.bytes > 0 ? point : CodePoint{0xFFFD, 1};
}

std::vector<char32_t> points_of(std::string_view text) {
  std::vector<char32_t> points;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = next_point(text, at);
    points.push_back(point.value);
    at += point.bytes;
  }
  return points;
}

}  // namespace

int64_t code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = next_point(text, 0);
    if (!is_space(point.value)) break;
    text.remove_prefix(point.bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_space(next_point(text, at).value)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string_view strip(std::string_view text) {
  return strip_left(strip_right(text));
}

std::string_view without_last(std::string_view text) {
  bool whole = text.empty();
  for (; !whole; text.remove_suffix(1)) whole = (static_cast<unsigned char>(text.back()) & 0xC0) != 0x80;
  return text;
}

int64_t space_fields(std::string_view text) {
  int64_t runs = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = next_point(text, at);
    const bool space = is_space(point.value);
    runs += space && !inside;
    inside = space;
    at += point.bytes;
  }
  return runs + 1;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    result.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return result.append(text.substr(at));
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string plain(buffer, fixed);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

bool has_case_tables() {
  return KATA_ICU != 0;
}

void require_case_tables(std::string_view what) {
  if (!has_case_tables())
    fail(ExitCode::device,
         "{} needs ICU, which this build does not have; install libicu-dev and build with KATA_ICU=ON", what);
}

namespace {

#if KATA_ICU
// A change of case of a whole text, in the root locale.
using CaseChange = int32_t (*)(UChar*, int32_t, const UChar*, int32_t, const char*, UErrorCode*);

std::string change_case(CaseChange change, std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  std::vector<UChar> from(text.size() + 1), to(3 * text.size() + 1);
  int32_t length = 0;
  u_strFromUTF8(from.data(), static_cast<int32_t>(from.size()), &length, text.data(),
                static_cast<int32_t>(text.size()), &status);
  const int32_t changed =
      change(to.data(), static_cast<int32_t>(to.size()), from.data(), length, "", &status);
  std::string result(static_cast<size_t>(changed) * 3, '\0');
  int32_t bytes = 0;
  u_strToUTF8(result.data(), static_cast<int32_t>(result.size()), &bytes, to.data(), changed, &status);
  KATA_CHECK(U_SUCCESS(status), "{}", u_errorName(status));
  result.resize(static_cast<size_t>(bytes));
  return result;
}

std::string in_lower(std::string_view text) {
  return change_case(u_strToLower, text);
}
std::string upper(std::string_view text) {
  return change_case(u_strToUpper, text);
}

// Of one character, also where it is no letter: ICU would otherwise look for the first letter.
std::string title(std::string_view one) {
  UErrorCode status = U_ZERO_ERROR;
  UCaseMap* map = ucasemap_open("", U_TITLECASE_NO_BREAK_ADJUSTMENT, &status);
  std::string result(3 * 4 + 1, '\0');  // three characters at most
  const int32_t bytes = ucasemap_utf8ToTitle(map, result.data(), static_cast<int32_t>(result.size()),
                                             one.data(), static_cast<int32_t>(one.size()), &status);
  ucasemap_close(map);
  KATA_CHECK(U_SUCCESS(status), "{}", u_errorName(status));
  result.resize(static_cast<size_t>(bytes));
  return result;
}

// Characters that a regular expression takes for equal have the same value here. The dotless i is not folded
// by Unicode, but is the lower case of a letter whose other case is i.
char32_t folded(char32_t c) {
  const auto lower = static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
  return lower == 0x131 ? U'i'
                        : static_cast<char32_t>(u_foldCase(static_cast<UChar32>(lower), U_FOLD_CASE_DEFAULT));
}
#else
bool is_ascii(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

char32_t ascii_lower(char32_t c) {
  return c >= 'A' && c <= 'Z' ? c + 32 : c;
}
char32_t ascii_upper(char32_t c) {
  return c >= 'a' && c <= 'z' ? c - 32 : c;
}

std::string mapped(std::string_view text, char32_t (*change)(char32_t)) {
  if (!is_ascii(text)) require_case_tables("text beyond ASCII");
  std::string result(text);
  for (char& c : result) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return result;
}

std::string in_lower(std::string_view text) {
  return mapped(text, ascii_lower);
}
std::string upper(std::string_view text) {
  return mapped(text, ascii_upper);
}
std::string title(std::string_view one) {
  return mapped(one, ascii_upper);
}

char32_t folded(char32_t c) {
  if (c >= 0x80) require_case_tables("text beyond ASCII");
  return ascii_lower(c);
}
#endif

size_t first_bytes(std::string_view text) {
  return text.empty() ? 0 : next_point(text, 0).bytes;
}

}  // namespace

std::string lower(std::string_view text) {
  return in_lower(text);
}

std::string capitalize(std::string_view text) {
  const std::string_view first = text.substr(0, first_bytes(text));
  // What follows is put in lower case in its place: a final sigma looks back at the letters before it.
  return title(first) + lower(text).substr(lower(first).size());
}

std::string lower_first(std::string_view text) {
  const size_t first = first_bytes(text);
  return lower(text.substr(0, first)).append(text.substr(first));
}

std::string upper_first(std::string_view text) {
  const size_t first = first_bytes(text);
  return upper(text.substr(0, first)).append(text.substr(first));
}

std::pair<size_t, size_t> find_ignoring_case(std::string_view text, std::string_view label) {
  std::vector<char32_t> wanted = points_of(label);
  for (char32_t& c : wanted) c = folded(c);
  std::vector<char32_t> given;
  std::vector<size_t> begins;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = next_point(text, at);
    given.push_back(folded(point.value));
    begins.push_back(at);
    at += point.bytes;
  }
  begins.push_back(text.size());
  for (size_t i = 0; i + wanted.size() <= given.size(); ++i)
    if (std::equal(wanted.begin(), wanted.end(), given.begin() + static_cast<std::ptrdiff_t>(i)))
      return {begins[i], begins[i + wanted.size()]};
  return {std::string_view::npos, std::string_view::npos};
}

bool contains_ignoring_case(std::string_view text, std::string_view label) {
  return find_ignoring_case(text, label).first != std::string_view::npos;
}

}  // namespace kata::harness
