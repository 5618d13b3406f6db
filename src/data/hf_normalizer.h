// The normalizer of a tokenizer.json: what happens to a text before it is cut into words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/json_view.h"

namespace kata {

// A section of the text that is encoded.
struct Section {
  std::string text;
  bool first = false;  // its first character comes from the first one of the whole text
};

// ExitCode::data where a text of `before` bytes has grown beyond measure: steps that a file lines up could
// each make ten characters of one.
void check_growth(size_t before, size_t now);
inline constexpr size_t most_growth = 40, growth_for_all = 8192;

// Refuses a value behind so many others.
void check_steps(size_t steps, const JsonView& value);

// NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, StripAccents and Sequence.
class HfNormalizer {
 public:
  HfNormalizer() = default;                      // does nothing
  explicit HfNormalizer(const JsonView& value);  // null or an object

  void apply(Section& section) const;
  bool does_nothing() const { return steps_.empty(); }

 private:
  void add(const JsonView& value);
  void add_replace(const JsonView& value);
  void add_strip(const JsonView& value);

  std::vector<std::function<void(Section&)>> steps_;
};

}  // namespace kata
