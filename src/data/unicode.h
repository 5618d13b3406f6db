// Classes of characters, lower case, normal forms and regular expressions of Unicode: a thin layer over ICU.
// A build without ICU has the same names; require_unicode() then says what to install, and nothing else here
// is called.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kata {

// ExitCode::device where this build has no ICU: "WHAT needs ICU, ...".
void require_unicode(const std::string& what);
bool has_unicode();

bool is_white_space(char32_t c);     // property White_Space
bool is_letter(char32_t c);          // categories L*
bool is_number(char32_t c);          // categories Nd, Nl, No
bool is_punctuation(char32_t c);     // categories P*, and ASCII's symbols
bool is_mark(char32_t c);            // categories Mn, Mc, Me
bool is_word_character(char32_t c);  // \w: alphabetic, marks, Nd, Pc, U+200C, U+200D

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Both take valid UTF-8. Lower case goes by single characters: a final sigma is a sigma like others.
std::string normal_form(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);

struct Span {
  size_t begin = 0, end = 0;  // bytes of a text
};

struct RegexError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A compiled pattern: ^ and $ match at line ends, which only \n makes; the dot does not match it. Threads may
// share it.
class Regex {
 public:
  // `name` says in messages which expression it is. RegexError, with the reason, where the pattern is none.
  Regex(const std::string& pattern, const std::string& name);
  ~Regex();
  Regex(Regex&& other) noexcept;

  // Each of the spans, which rise and do not overlap, is a text of its own, of valid UTF-8: calls
  // found(index of the span, match). An empty match right behind another match is none.
  // ExitCode::data where a match takes too much time or memory.
  void find(std::string_view text, const std::vector<Span>& spans,
            const std::function<void(size_t, Span)>& found) const;

 private:
  struct Matchers;
  std::unique_ptr<Matchers> matchers_;
};

}  // namespace kata
