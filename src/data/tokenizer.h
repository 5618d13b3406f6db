// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kata {

class Tokenizer {
 public:
  virtual ~Tokenizer();

  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // ExitCode::data when an id is outside [0, vocab()).
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  virtual int64_t vocab() const = 0;
  virtual std::string name() const = 0;
  // What a checkpoint stores so that make_tokenizer's product can be made again from it.
  virtual std::string serialise() const = 0;
};

// "bytes": the 256 byte values are the ids, so any text has tokens and every decode of them is that text.
// ExitCode::usage for another name, with the names that exist.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace kata
