// RULER's needle in a haystack of repeated sentences (niah_single_1), draw for draw, for the same words and
// number of repetitions (EVAL D.1, D.6).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/harness/python_random.h"

namespace kata::harness {

struct Needle {
  std::string key, value;
  int64_t line = 0;           // of the haystack, before which it stands
  std::string prompt;         // without the answer's beginning
  std::string answer_prefix;  // " The special magic number for KEY mentioned in the provided text is"
};

// words: sorted, unique keys. repetitions: of the sentence group, a line each.
Needle draw_needle(PythonRandom& random, const std::vector<std::string>& words, int64_t repetitions);

}  // namespace kata::harness
