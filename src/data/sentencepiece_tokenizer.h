// Sentencepiece models, read by the library and guarded against what its reader takes without a word.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace kata {

inline constexpr uint64_t largest_sentencepiece_model = uint64_t{64} << 20;  // bytes
inline constexpr const char* sentencepiece_file = "tokenizer.model";         // in a checkpoint

// The model in the file `path`; `name` is what name() says. Ids are the model's own; encode() adds none of
// its control tokens. decode() gives back the exact text where the model normalises nothing; text that is no
// UTF-8 loses its bad bytes. The document token is the model's eos, else its bos.
//
// ExitCode::data for a file that is missing, above largest_sentencepiece_model, cut short, or no model. The
// library meets the bytes in a child process first, so that its own faults cannot end this one.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path, const std::string& name);

}  // namespace kata
