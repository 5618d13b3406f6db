// data/unicode.h in a build without ICU.
#if !KATA_ICU

#include "base/error.h"
#include "data/unicode.h"

namespace kata {

namespace {
[[noreturn]] void no_icu(const std::string& what) {
  fail(ExitCode::device,
       "{} needs ICU, which this build lacks; install libicu-dev and build again with -DKATA_ICU=ON", what);
}
}  // namespace

void require_unicode(const std::string& what) {
  no_icu(what);
}
bool has_unicode() {
  return false;
}

bool is_white_space(char32_t) {
  no_icu("white space");
}
bool is_letter(char32_t) {
  no_icu("a letter");
}
bool is_number(char32_t) {
  no_icu("a number");
}
bool is_punctuation(char32_t) {
  no_icu("punctuation");
}
bool is_mark(char32_t) {
  no_icu("a mark");
}
bool is_word_character(char32_t) {
  no_icu("a word");
}
std::string normal_form(std::string_view, NormalForm) {
  no_icu("a normal form");
}
std::string lower_case(std::string_view) {
  no_icu("lower case");
}

struct Regex::Matchers {};
Regex::Regex(const std::string&, const std::string& name) {
  no_icu(name);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
void Regex::find(std::string_view, const std::vector<Span>&, const std::function<void(size_t, Span)>&) const {
}

}  // namespace kata

#endif
