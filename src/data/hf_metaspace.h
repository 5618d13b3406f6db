// Metaspace of a tokenizer.json, which is a pre-tokenizer and a decoder: blanks as a visible character.
#pragma once

#include <string>

#include "data/json_view.h"

namespace kata {

struct Metaspace {
  std::string replacement;                                 // one character, in UTF-8
  enum Prepend { first, never, always } prepend = always;  // where a text that begins with no blank gets one
  bool split = true;                                       // into words that begin with the replacement
};

// add_prefix_space is what older files say: true for always, false for never.
Metaspace read_metaspace(const JsonView& value);

}  // namespace kata
