// Text files to token shards, and back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace kata {

struct TokenizeOptions {
  std::vector<std::string> inputs;  // joined as they are, in this order; "-" is standard input
  std::string output;               // folder
  std::string tokenizer = "bytes";
  // What a document is, which begins with the tokenizer's document token where it has one: "file", or
  // "form-feed": a file holds many, and the form feed (U+000C) between two is no part of either.
  std::string documents = "file";
  // Of the text's bytes, taken from its end; 0: none. In [0, 1). With form feeds it is whole documents.
  double validation_fraction = 0.05;
  int64_t shard_tokens = 100'000'000;  // of one train shard, at most largest_shard
  bool overwrite = false;
};

struct TokenizedFile {
  std::string path;
  int64_t tokens = 0;
};
struct TokenizeResult {
  int64_t train_bytes = 0, validation_bytes = 0;  // of text
  std::vector<TokenizedFile> files;
};

// Writes OUTPUT/train-000000.bin, train-000001.bin, ... and OUTPUT/validation.bin. They are made aside and
// moved into place when all are complete, so a failure leaves the folder as it was. The same files come out
// on any number of threads. ExitCode::usage where shards exist and overwrite is false (with it, all of the
// old set goes), and for an input that is no text: compressed, or a token shard. ExitCode::data where there
// is too little text.
TokenizeResult tokenize(const TokenizeOptions& options);

// Gives the text of the shards, in parts. ExitCode::data for ids that the tokenizer does not know.
void detokenize(const std::vector<std::string>& shards, const Tokenizer& tokenizer,
                const std::function<void(std::string_view)>& sink);

// Bytes of text that a token of the shards stands for, on average. ExitCode::data as for detokenize.
double bytes_per_token(const std::vector<std::string>& shards, const Tokenizer& tokenizer);

}  // namespace kata
