// The pre-tokenizer of a tokenizer.json: a text becomes words, and no token crosses the border of a word.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/hf_normalizer.h"
#include "data/json_view.h"
#include "data/text_pattern.h"

namespace kata {

struct Words {
  std::string text;
  std::vector<Span> spans;  // the words, in order
  bool first = false;       // the first span begins where the whole text does
};

// ByteLevel, Split, Metaspace, Digits, Whitespace, WhitespaceSplit, Punctuation and Sequence.
class HfPreTokenizer {
 public:
  explicit HfPreTokenizer(const JsonView& value);  // null or an object

  Words apply(Section section) const;
  // The words are bytes, which the vocabulary spells in the alphabet of byte_level.h.
  bool byte_level() const { return byte_level_; }

 private:
  using Step = std::function<void(Words&)>;

  void add(const JsonView& value);
  void add_byte_level(const JsonView& value);
  void add_split(const JsonView& value);
  void add_metaspace(const JsonView& value);
  void add_cut(TextPattern pattern, Cut cut, bool invert = false);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace kata
