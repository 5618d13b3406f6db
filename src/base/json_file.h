// JSON files of other programs, read with limits that hold before a parser sees a byte.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace kata {

// The object in a file of at most `largest` bytes, nested at most 64 deep, without a key twice in one object.
// ExitCode::data with the file and the place for everything else.
nlohmann::json read_json_object(const std::string& path, uint64_t largest);

}  // namespace kata
