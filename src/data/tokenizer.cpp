#include "data/tokenizer.h"

#include "base/error.h"
#include "data/hf_tokenizer.h"
#include "data/sentencepiece_tokenizer.h"

namespace kata {

Tokenizer::~Tokenizer() = default;

namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> ids(text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text(ids.size(), '\0');
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > 255)
        fail(ExitCode::data,
             "token {} at position {} is no byte (0 to 255); was it made by another tokenizer?", ids[i], i);
      text[i] = static_cast<char>(ids[i]);
    }
    return text;
  }

  std::string decode_next(int32_t id) const override { return decode({id}); }
  int64_t vocab() const override { return 256; }
  std::string name() const override { return "bytes"; }
  int32_t document_token() const override { return -1; }
  std::string file_name() const override { return "tokenizer.json"; }
  std::string serialise() const override { return "{\"tokenizer\": \"bytes\"}\n"; }
};

constexpr std::string_view sentencepiece_ending = ".model", hf_ending = ".json";

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (name.ends_with(sentencepiece_ending)) return load_sentencepiece(name, name);
  if (name.ends_with(hf_ending)) return load_hf_tokenizer(name, name);
  fail(ExitCode::usage,
       "unknown tokenizer \"{}\"; expected bytes, or the path of a sentencepiece model (*{}) or of a "
       "tokenizer.json (*{})",
       name, sentencepiece_ending, hf_ending);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& folder, const std::string& name) {
  if (name.ends_with(hf_ending)) return load_hf_tokenizer(folder + "/" + hf_tokenizer_file, name);
  if (!name.ends_with(sentencepiece_ending)) return make_tokenizer(name);
  return load_sentencepiece(folder + "/" + sentencepiece_file, name);
}

}  // namespace kata
