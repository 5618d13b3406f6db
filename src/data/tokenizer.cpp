#include "data/tokenizer.h"

#include "base/error.h"

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

  int64_t vocab() const override { return 256; }
  std::string name() const override { return "bytes"; }
  std::string serialise() const override { return "{\"tokenizer\": \"bytes\"}\n"; }
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  fail(ExitCode::usage, "unknown tokenizer \"{}\"; expected one of: bytes", name);
}

}  // namespace kata
