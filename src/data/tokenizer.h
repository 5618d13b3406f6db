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
  // The same, and around it the special tokens (such as a begin-of-text token) where the tokenizer's own file
  // says that a text has some: a tokenizer.json may.
  virtual std::vector<int32_t> encode_with_special_tokens(std::string_view text) const {
    return encode(text);
  }
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const {
    return add_special_tokens ? encode_with_special_tokens(text) : encode(text);
  }
  // A whole text. ExitCode::data when an id is outside [0, vocab()).
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  // What one token adds inside a text, possibly a part of a character. ExitCode::data as for decode.
  virtual std::string decode_next(int32_t id) const = 0;
  virtual int64_t vocab() const = 0;
  // What data.tokenizer says: bytes, or a path.
  virtual std::string name() const = 0;
  // The id that begins a document, -1 where there is none.
  virtual int32_t document_token() const = 0;
  // The file that a checkpoint stores: its name, which tells the kind of tokenizer, and its bytes.
  virtual std::string file_name() const = 0;
  virtual std::string serialise() const = 0;
};

// "bytes": the 256 byte values are the ids, so any text has tokens and every decode of them is that text.
// A path that ends in .model: a sentencepiece model; in .json: a tokenizer.json of Hugging Face
// (hf_tokenizer.h). ExitCode::data where the file is missing or is none.
// ExitCode::usage for another name, with the kinds that exist.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

// The tokenizer that a checkpoint in `folder` was trained with; `name` is its config's data.tokenizer, whose
// own file need not exist any more.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& name);

}  // namespace kata
