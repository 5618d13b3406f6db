// A sentencepiece model out of text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kata {

struct SentencePieceOptions {
  std::vector<std::string> inputs;  // text files; "-" is standard input
  std::string output;               // the model
  int64_t vocab = 32'000;           // pieces, with unk 0, bos 1, eos 2 and the 256 bytes
  std::string kind = "unigram";     // or bpe
};

struct SentencePieceSummary {
  int64_t text_bytes = 0, used_bytes = 0;  // of all files; of the lines that it was trained on
  int64_t model_bytes = 0;
};

// Trains on the lines of the files (a form feed ends a line too) and writes the model atomically. It
// normalises nothing, keeps every blank, spells what has no piece in bytes, and cuts numbers into digits; so
// decode(encode(text)) is any text of valid UTF-8 but for U+2581, which stands for a blank. The same text
// gives the same bytes on any number of cores. Of more than largest_training_text bytes every n-th line is
// used. ExitCode::data where the library cannot make so many pieces of the text.
inline constexpr int64_t largest_training_text = int64_t{256} << 20;
SentencePieceSummary train_sentencepiece(const SentencePieceOptions& options);

}  // namespace kata
