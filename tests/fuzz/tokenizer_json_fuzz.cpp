// A tokenizer.json from strangers, and a text: the file is refused in one line or encodes the text.
//
//   build/fuzz/bin/tokenizer_json_fuzz -max_len=60000 -max_total_time=180 FOLDER tests/data/fixtures
//
// An input is the file's bytes, and behind the first zero byte the text. FOLDER collects new inputs.
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "data/hf_tokenizer.h"
#include "data/utf8.h"

namespace {

constexpr size_t largest_input = 1 << 16, largest_text = 300;

void use(const kata::Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  for (const int32_t id : tokenizer.encode(text, true))
    KATA_CHECK(id >= 0 && id < tokenizer.vocab(), "id {} of {}", id, tokenizer.vocab());
  tokenizer.decode(ids);
  for (const int32_t id : ids) tokenizer.decode_next(id);
  KATA_CHECK(tokenizer.encode(text) == ids, "the second time is different");  // out of the cache
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > largest_input) return 0;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string text = end < size
                               ? input.substr(end + 1, largest_text)
                               : "The  caf\xc3\xa9, 12345\n\n don't \xe2\x96\x81x <s>\xff \xf0\x9f\x99\x82";
  try {
    const auto tokenizer = kata::read_hf_tokenizer(input.substr(0, end), "input.json", "input.json");
    use(*tokenizer, text);
  } catch (const kata::Error& error) {
    const std::string line = error.what();
    KATA_CHECK(
        error.code() == kata::ExitCode::data && kata::is_utf8(line) && line.find('\n') == std::string::npos,
        "{}", line);
  }
  return 0;
}
