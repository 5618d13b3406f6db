// What to do about data that is not there.
#pragma once

#include <string>
#include <vector>

namespace kata {

// "make it with scripts/make_lm_corpus.sh" for a path or pattern in data/lm, likewise for what the other
// configs that ship read; for others "check the spelling ...".
std::string missing_data_advice(const std::string& path);

// expand_patterns of base/file.h, with this advice where a pattern matches nothing.
std::vector<std::string> expand_data_patterns(const std::vector<std::string>& patterns);

}  // namespace kata
