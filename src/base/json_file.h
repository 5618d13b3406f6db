// JSON files of other programs, read with limits that hold before a parser sees a byte.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace kata {

// A name out of a file for a message: quoted, on one line, and cut where it is absurdly long.
std::string name_in_quotes(const std::string& name);
// A key on the way to a value: .key, or ["a key"] where it is no plain word.
std::string json_step(const std::string& key);

// The whole text as one value. Refuses nesting above `most_levels`, a key that stands twice in an object, and
// text that is no UTF-8. `file` is what messages call it.
nlohmann::json parse_json(std::string_view text, const std::string& file, int most_levels);

// The object in a file of at most `largest` bytes, nested at most 64 deep; as parse_json else.
nlohmann::json read_json_object(const std::string& path, uint64_t largest);

}  // namespace kata
