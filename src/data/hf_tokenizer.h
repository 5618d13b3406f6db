// tokenizer.json, the file of the Hugging Face tokenizers library: byte pair models of the GPT-2, Llama-3 and
// Qwen kind (bytes) and of the Llama-2 kind (visible blanks).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace kata {

inline constexpr uint64_t largest_hf_tokenizer = uint64_t{256} << 20;  // bytes
inline constexpr int deepest_hf_tokenizer = 64;                        // objects and arrays in each other
inline constexpr const char* hf_tokenizer_file = "tokenizer.json";     // in a checkpoint

// The tokenizer in the file `path`; `name` is what name() says.
//
// encode() gives the ids that the library gives, added tokens in the text among them; special tokens around
// the text (the file's post_processor) only where they are asked for. Text that is no UTF-8 is read with
// U+FFFD for each bad byte, as sentencepiece models read it. decode() leaves special tokens out, as the
// library does, but keeps bytes that make no character as they are. Ids are those that the file states, an
// id without a piece stands for no text. The document token is the special token whose name says that it ends
// a text (</s>, <|endoftext|> ...), else the one that the post_processor puts first.
//
// ExitCode::data for a file that is missing, above largest_hf_tokenizer, or none of the kind, with the path
// of keys to what is wrong or not known here. ExitCode::device in a build without ICU.
std::unique_ptr<Tokenizer> load_hf_tokenizer(const std::string& path, const std::string& name);

// The same from the file's bytes.
std::unique_ptr<Tokenizer> read_hf_tokenizer(std::string bytes, const std::string& path,
                                             const std::string& name);

}  // namespace kata
