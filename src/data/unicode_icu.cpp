// data/unicode.h through ICU's C interface, which is the same in every version.
#if KATA_ICU

#include <mutex>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uregex.h>
#include <unicode/ustring.h>

#include "base/error.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace kata {

namespace {

constexpr int32_t most_steps = 2000;              // of one match, in ICU's unit: 10,000 saved states
constexpr int32_t most_stack = 64 * 1024 * 1024;  // bytes of saved states

UChar32 icu(char32_t c) {
  return static_cast<UChar32>(c);
}

bool in_category(char32_t c, uint32_t mask) {
  return (U_GET_GC_MASK(icu(c)) & mask) != 0;
}

void append_utf16(std::u16string& text, char32_t value) {
  if (value < 0x10000) {
    text += static_cast<char16_t>(value);
  } else {
    text += static_cast<char16_t>(0xD7C0 + (value >> 10));
    text += static_cast<char16_t>(0xDC00 + (value & 0x3FF));
  }
}

std::u16string utf16(std::string_view text) {
  std::u16string wide;
  wide.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    KATA_CHECK(point.bytes > 0, "byte {} of {} is no UTF-8", at, text.size());
    append_utf16(wide, point.value);
    at += point.bytes;
  }
  return wide;
}

std::string utf8(const std::u16string& wide) {
  std::string text;
  text.reserve(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    char32_t value = wide[i];
    if (value >= 0xD800 && value < 0xDC00 && i + 1 < wide.size())
      value = 0x10000 + ((value - 0xD800) << 10) + (static_cast<char32_t>(wide[++i]) - 0xDC00);
    append_code_point(text, value);
  }
  return text;
}

int32_t size_of(const std::u16string& text) {
  KATA_CHECK(text.size() < (size_t{1} << 31), "a text of {} units", text.size());
  return static_cast<int32_t>(text.size());
}

}  // namespace

void require_unicode(const std::string&) {}
bool has_unicode() {
  return true;
}

bool is_white_space(char32_t c) {
  return u_isUWhiteSpace(icu(c));
}
bool is_letter(char32_t c) {
  return in_category(c, U_GC_L_MASK);
}
bool is_number(char32_t c) {
  return in_category(c, U_GC_N_MASK);
}
bool is_punctuation(char32_t c) {
  return in_category(c, U_GC_P_MASK) || (c < 0x80 && in_category(c, U_GC_S_MASK));
}
bool is_mark(char32_t c) {
  return in_category(c, U_GC_M_MASK);
}
bool is_word_character(char32_t c) {
  return u_isUAlphabetic(icu(c)) || in_category(c, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
         c == 0x200C || c == 0x200D;
}

std::string normal_form(std::string_view text, NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* normalizer = form == NormalForm::nfc    ? unorm2_getNFCInstance(&status)
                                   : form == NormalForm::nfd  ? unorm2_getNFDInstance(&status)
                                   : form == NormalForm::nfkc ? unorm2_getNFKCInstance(&status)
                                                              : unorm2_getNFKDInstance(&status);
  const std::u16string wide = utf16(text);
  std::u16string result(wide.size() * 3 / 2 + 32, u'\0');
  for (;;) {
    const int32_t size =
        unorm2_normalize(normalizer, wide.data(), size_of(wide), result.data(), size_of(result), &status);
    const bool too_small = status == U_BUFFER_OVERFLOW_ERROR;
    if (too_small) status = U_ZERO_ERROR;
    KATA_CHECK(U_SUCCESS(status), "{}", u_errorName(status));
    result.resize(static_cast<size_t>(size));
    if (!too_small) return utf8(result);
  }
}

std::string lower_case(std::string_view text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value < 0x80) {
      lower += static_cast<char>(point.value >= 'A' && point.value <= 'Z' ? point.value + 32 : point.value);
    } else {
      std::u16string one, result(8, u'\0');
      append_utf16(one, point.value);
      UErrorCode status = U_ZERO_ERROR;
      const int32_t size =
          u_strToLower(result.data(), size_of(result), one.data(), size_of(one), "", &status);
      KATA_CHECK(U_SUCCESS(status), "{}", u_errorName(status));
      result.resize(static_cast<size_t>(size));
      lower += utf8(result);
    }
    at += point.bytes;
  }
  return lower;
}

// ---- regular expressions ----

namespace {

struct CloseRegex {
  void operator()(URegularExpression* regex) const { uregex_close(regex); }
};
using IcuRegex = std::unique_ptr<URegularExpression, CloseRegex>;

void limit(URegularExpression* regex) {
  UErrorCode status = U_ZERO_ERROR;
  uregex_setTimeLimit(regex, most_steps, &status);
  uregex_setStackLimit(regex, most_stack, &status);
  KATA_CHECK(U_SUCCESS(status), "{}", u_errorName(status));
}

// Bytes of a text from units of UTF-16, asked for in rising order.
class Cursor {
 public:
  Cursor(std::string_view text, bool ascii) : text_(text), ascii_(ascii) {}
  size_t byte_at(size_t unit) {
    if (ascii_) return unit;
    while (unit_ < unit) {
      const auto first = static_cast<unsigned char>(text_[byte_]);
      byte_ += first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
      unit_ += first < 0xF0 ? 1 : 2;
    }
    return byte_;
  }
  size_t unit_at(size_t byte) {
    if (ascii_) return byte;
    while (byte_ < byte) byte_at(unit_ + 1);
    return unit_;
  }

 private:
  std::string_view text_;
  bool ascii_;
  size_t byte_ = 0, unit_ = 0;
};

}  // namespace

struct Regex::Matchers {
  std::string name;
  IcuRegex first;
  std::mutex mutex;
  std::vector<IcuRegex> idle;  // copies of the first, each for one thread at a time

  IcuRegex take() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        IcuRegex regex = std::move(idle.back());
        idle.pop_back();
        return regex;
      }
    }
    UErrorCode status = U_ZERO_ERROR;
    IcuRegex regex(uregex_clone(first.get(), &status));
    KATA_CHECK(U_SUCCESS(status), "{}", u_errorName(status));
    limit(regex.get());
    return regex;
  }
  void give_back(IcuRegex regex) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(regex));
  }
  void check(UErrorCode status) const {
    if (U_SUCCESS(status)) return;
    if (status == U_REGEX_TIME_OUT || status == U_REGEX_STACK_OVERFLOW)
      fail(ExitCode::data, "{}: this regular expression takes too {} over the text", name,
           status == U_REGEX_TIME_OUT ? "long" : "much memory");
    fail(ExitCode::data, "{}: this regular expression fails on the text ({})", name, u_errorName(status));
  }
};

Regex::Regex(const std::string& pattern, const std::string& name) : matchers_(std::make_unique<Matchers>()) {
  matchers_->name = name;
  const std::u16string wide = utf16(pattern);
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  matchers_->first.reset(
      uregex_open(wide.data(), size_of(wide), UREGEX_MULTILINE | UREGEX_UNIX_LINES, &where, &status));
  if (U_FAILURE(status))
    throw RegexError(fmt::format("{} at character {}", u_errorName(status), where.offset));
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

void Regex::find(std::string_view text, const std::vector<Span>& spans,
                 const std::function<void(size_t, Span)>& found) const {
  const std::u16string wide = utf16(text);
  const bool ascii = wide.size() == text.size();
  Cursor borders(text, ascii), cursor(text, ascii);  // of spans, of matches
  IcuRegex regex = matchers_->take();
  for (size_t i = 0; i < spans.size(); ++i) {
    const size_t begin = borders.unit_at(spans[i].begin), end = borders.unit_at(spans[i].end);
    const auto size = static_cast<int32_t>(end - begin);
    UErrorCode status = U_ZERO_ERROR;
    uregex_setText(regex.get(), wide.data() + begin, size, &status);
    int32_t behind = -1;  // the end of the match before
    for (int32_t at = 0; at <= size;) {
      if (!uregex_find(regex.get(), at, &status)) break;
      const int32_t from = uregex_start(regex.get(), 0, &status), to = uregex_end(regex.get(), 0, &status);
      if (from == to && from == behind) {
        const bool pair = at + 1 < size && U16_IS_LEAD(wide[begin + static_cast<size_t>(at)]);
        at += pair ? 2 : 1;
        continue;
      }
      at = behind = to;
      const size_t first = cursor.byte_at(begin + static_cast<size_t>(from));
      found(i, {first, cursor.byte_at(begin + static_cast<size_t>(to))});
    }
    matchers_->check(status);
  }
  matchers_->give_back(std::move(regex));
}

}  // namespace kata

#endif
