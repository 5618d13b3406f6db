// What is in a data file, in a few lines for people.
#pragma once

#include <string>

#include "data/tokenizer.h"

namespace kata {

// Token shards (header, id range, first tokens, their text), .npz archives (arrays, ranges, first values) and
// .safetensors files (tensors, metadata); known by their names' endings, otherwise by their first bytes.
// ExitCode::data for a damaged file and for any other kind.
std::string inspect(const std::string& path, const Tokenizer& tokenizer);

// The text in quotes, as one printable line: control characters and broken UTF-8 as \n, \t, \xNN.
std::string quoted_line(std::string_view text);

}  // namespace kata
