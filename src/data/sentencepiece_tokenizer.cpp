#include "data/sentencepiece_tokenizer.h"

#include <charconv>
#include <sentencepiece_processor.h>

#include "base/file.h"
#include "data/advice.h"
#include "data/child_process.h"
#include "data/sentencepiece_layout.h"

namespace kata {

namespace {

using sentencepiece::SentencePieceProcessor;

constexpr std::string_view blank = "\xe2\x96\x81";  // U+2581 stands for a blank inside pieces

// ---- through the library ----

// Text that takes the library through its normaliser, its pieces and its handling of unknown characters.
constexpr const char* probe =
    "The quick  brown fox\tjumps\n over 12,345.67 lazy dogs. \xc3\x89t\xc3\xa9 \xef\xbc\xa1\xef\xac\x81 "
    "\xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x99\x82 e\xcc\x81 \xff\xfe\xe2\x81\x87\x01";

// An empty string, or what is wrong.
std::string load(SentencePieceProcessor& model, std::string_view bytes) {
  const auto status = model.LoadFromSerializedProto(bytes);
  return status.ok() ? "" : status.ToString();
}

std::string try_out(std::string_view bytes) {
  SentencePieceProcessor model;
  std::string problem = load(model, bytes);
  if (!problem.empty()) return problem;
  std::vector<int> ids;
  std::string text;
  const auto encoded = model.Encode(probe, &ids);
  if (!encoded.ok()) return encoded.ToString();
  const auto decoded = model.Decode(ids, &text);
  return decoded.ok() ? "" : decoded.ToString();
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string bytes, const std::string& path, const std::string& name)
      : bytes_(std::move(bytes)), name_(name) {
    const ChildOutcome outcome = run_in_child([&] { return try_out(bytes_); });
    if (!outcome.returned)
      refuse_sentencepiece(path,
                           fmt::format("the sentencepiece library breaks down over it ({})", outcome.ending));
    if (!outcome.value.empty() || !load(model_, bytes_).empty())
      refuse_sentencepiece(path, fmt::format("the sentencepiece library refuses it ({})", outcome.value));
    texts_.resize(static_cast<size_t>(model_.GetPieceSize()));
    for (size_t id = 0; id < texts_.size(); ++id) texts_[id] = text_of(static_cast<int>(id));
    const std::vector<int32_t> one = encode("a");
    dummy_blank_ = !one.empty() && texts_[static_cast<size_t>(one[0])].starts_with(' ');
  }

  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = model_.Encode(text, &ids);
    if (!status.ok()) fail(ExitCode::data, "{}: cannot encode the text: {}", name_, status.ToString());
    return ids;
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= vocab())
        fail(ExitCode::data,
             "token {} at position {} is none of the {} of {}; was it made by another tokenizer?", ids[i], i,
             vocab(), name_);
      text += texts_[static_cast<size_t>(ids[i])];
    }
    return dummy_blank_ && text.starts_with(' ') ? text.substr(1) : text;
  }

  std::string decode_next(int32_t id) const override {
    if (id < 0 || id >= vocab())
      fail(ExitCode::data, "token {} is none of the {} of {}; was it made by another tokenizer?", id, vocab(),
           name_);
    return texts_[static_cast<size_t>(id)];
  }

  int64_t vocab() const override { return static_cast<int64_t>(texts_.size()); }
  std::string name() const override { return name_; }
  int32_t document_token() const override { return model_.eos_id() >= 0 ? model_.eos_id() : model_.bos_id(); }
  std::string file_name() const override { return sentencepiece_file; }
  std::string serialise() const override { return bytes_; }

 private:
  std::string text_of(int id) const {
    if (model_.IsControl(id) || model_.IsUnused(id)) return "";
    if (model_.IsUnknown(id)) return " \xe2\x81\x87 ";
    const std::string_view piece = model_.IdToPiece(id);
    if (model_.IsByte(id)) {  // <0x0A>
      unsigned byte = 0;
      if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
      return std::string(1, static_cast<char>(byte));
    }
    std::string text;
    for (size_t at = 0; at < piece.size();) {
      const bool is_blank = piece.substr(at).starts_with(blank);
      text += is_blank ? ' ' : piece[at];
      at += is_blank ? blank.size() : 1;
    }
    return text;
  }

  std::string bytes_, name_;
  SentencePieceProcessor model_;
  std::vector<std::string> texts_;  // of every id, inside a text
  bool dummy_blank_ = false;        // encode() puts a blank before the text
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::string& path, const std::string& name) {
  if (!path_exists(path))
    fail(ExitCode::data, "{}: no such tokenizer file; {}", path, missing_data_advice(path));
  {
    const InputFile file(path);
    if (file.size() > largest_sentencepiece_model)
      refuse_sentencepiece(path, fmt::format("{} bytes, more than the {} that are read", file.size(),
                                             largest_sentencepiece_model));
  }
  std::string bytes = read_file(path);
  check_sentencepiece_layout(bytes, path);
  return std::make_unique<SentencePieceTokenizer>(std::move(bytes), path, name);
}

}  // namespace kata
