// Token shards: the files of llm.c and modded-nanogpt, read and written.
//
//   256 x int32   magic, version, n, 253 zeros           all little-endian
//   n tokens      magic 20240520, version 1: uint16      0 < n < 2^31
//                 magic 20240801, version 7: uint32
//
// The file is exactly as long as its header says; anything else is refused before it is mapped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace kata {

inline constexpr int64_t shard_header_bytes = 1024;
inline constexpr int64_t largest_shard = (int64_t{1} << 31) - 1;  // tokens

class Shard {
 public:
  // ExitCode::data with one line for a file that is no complete shard.
  explicit Shard(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t tokens() const { return tokens_; }
  int token_bytes() const { return token_bytes_; }  // 2 or 4

  // Tokens begin .. begin + count - 1; ExitCode::data for an id of 2^31 or more.
  void read(int64_t begin, int64_t count, int32_t* out) const;

  struct Ids {
    uint32_t smallest, largest;
  };
  Ids ids() const;  // of the whole shard, in parallel

  // ExitCode::data with position and id of the first token that is not below vocab. In parallel; does nothing
  // where the width of the ids already says that they fit.
  void check_ids(int64_t vocab) const;

 private:
  struct Header {
    int64_t tokens;
    int token_bytes;
  };
  static Header read_header(const InputFile& file);
  explicit Shard(const InputFile& file);
  Shard(const InputFile& file, const Header& header);

  template <class Body>
  auto with_tokens(Body&& body) const;  // body(pointer to the first token, of its type)

  std::string path_;
  int64_t tokens_;
  int token_bytes_;
  MappedFile map_;
};

// Whether a file that begins with these bytes (4 are enough) means to be a shard.
bool is_shard_start(std::string_view bytes);

// Writes a shard atomically: uint16 where vocab <= 65536, uint32 otherwise. 0 < tokens.size() <=
// largest_shard, every token in [0, vocab).
void write_shard(const std::string& path, std::span<const int32_t> tokens, int64_t vocab);

}  // namespace kata
