// Several shards as one row of tokens.
#pragma once

#include <string>
#include <vector>

#include "data/shard.h"

namespace kata {

class TokenStream {
 public:
  // The shards in the order of the paths, every id below vocab. ExitCode::data as Shard and Shard::check_ids;
  // ExitCode::usage where there is no path.
  TokenStream(const std::vector<std::string>& paths, int64_t vocab);

  int64_t tokens() const { return first_.back(); }
  int64_t vocab() const { return vocab_; }
  // "a.bin", "a.bin and 3 more files", for messages.
  std::string description() const;

  // Tokens begin .. begin + count - 1, across shards. ExitCode::data where an id is no longer below vocab
  // because the file was changed after it was opened.
  void read(int64_t begin, int64_t count, int32_t* out) const;

 private:
  std::vector<Shard> shards_;
  std::vector<int64_t> first_;  // [shards + 1], position of each shard's first token
  int64_t vocab_;
};

}  // namespace kata
