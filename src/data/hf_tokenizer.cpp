#include "data/hf_tokenizer.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/file.h"
#include "data/added_tokens.h"
#include "data/advice.h"
#include "data/byte_level.h"
#include "data/hf_decoder.h"
#include "data/hf_model.h"
#include "data/hf_normalizer.h"
#include "data/hf_pre_tokenizer.h"
#include "data/hf_template.h"
#include "data/inspect.h"
#include "data/utf8.h"
#include "data/word_cache.h"

namespace kata {

namespace {

// Names of the token behind a text, the likeliest first.
constexpr const char* text_ends[] = {"<|endoftext|>",
                                     "<|end_of_text|>",
                                     "</s>",
                                     "<eos>",
                                     "<|eos|>",
                                     "[EOS]",
                                     "<\xef\xbd\x9c"
                                     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};

constexpr size_t most_holes = size_t{1} << 20;  // ids without a piece, with few pieces

// The pieces by id.
class PieceTable {
 public:
  PieceTable(const std::string& file, const BpeModel& model, const std::vector<AddedToken>& added,
             const JsonView& added_value) {
    int32_t largest = 0;
    for (const auto& [piece, id] : model.pieces) largest = std::max(largest, id);
    for (const AddedToken& token : added) largest = std::max(largest, token.id);
    const size_t count = model.pieces.size() + added.size();
    if (static_cast<size_t>(largest) > most_holes + 4 * count)
      fail(ExitCode::data, "{}: ids up to {} for {} pieces; expected fewer holes", file, largest, count);
    for (const auto& [piece, id] : model.pieces) put(id, piece);
    for (size_t i = 0; i < added.size(); ++i) {
      const AddedToken& token = added[i];
      const auto it = model.pieces.find(token.content);
      if (it != model.pieces.end() && it->second != token.id)
        added_value.at(i).at("id").refuse(
            fmt::format("{}, but model.vocab gives it {}", token.id, it->second));
      if (it == model.pieces.end() && has(token.id))
        added_value.at(i).at("id").refuse(fmt::format("id {} belongs to the piece {} of model.vocab",
                                                      token.id, quoted_line(piece(token.id))));
      put(token.id, token.content);
      if (token.special) rows_[static_cast<size_t>(token.id)].special = true;
    }
  }

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  bool has(int32_t id) const { return id < size() && rows_[static_cast<size_t>(id)].given; }
  const std::string& piece(int32_t id) const { return rows_[static_cast<size_t>(id)].piece; }
  void rename(int32_t id, const std::string& piece) { rows_[static_cast<size_t>(id)].piece = piece; }
  // Whether text comes of the id at all.
  bool speaks(int32_t id) const { return has(id) && !rows_[static_cast<size_t>(id)].special; }

 private:
  struct Row {
    std::string piece;
    bool given = false, special = false;
  };
  void put(int32_t id, const std::string& piece) {
    if (id >= size()) rows_.resize(static_cast<size_t>(id) + 1);
    rows_[static_cast<size_t>(id)] = {piece, true, false};
  }
  std::vector<Row> rows_;
};

// What one thread needs while it encodes.
struct Desk {
  WordCache cache;
  std::string spelling;
};

class HfTokenizer : public Tokenizer {
 public:
  HfTokenizer(std::string bytes, const JsonView& root, std::string name)
      : bytes_(std::move(bytes)),
        name_(std::move(name)),
        bpe_(read_bpe_model(root.at("model")), name_),
        normalizer_(or_null(root, "normalizer")),
        pre_tokenizer_(or_null(root, "pre_tokenizer")),
        decoder_(or_null(root, "decoder")),
        added_(read_added(root)),
        pieces_(root.where(), bpe_.model(), added_, or_null(root, "added_tokens")),
        template_(or_null(root, "post_processor"), pieces_.size()) {
    root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
               "post_processor", "decoder", "model"});
    if (const auto version = root.find("version")) version->one_of({"1.0"});
    for (const char* key : {"truncation", "padding"})
      if (const JsonView value = or_null(root, key); !value.is_null())
        value.refuse("texts are neither cut nor filled up here; expected null");
    for (size_t i = 0; i < added_.size(); ++i) find_in_text(added_[i], root, i);
    for (int32_t id = 0; id < pieces_.size(); ++id)
      texts_.push_back(pieces_.speaks(id) ? decoder_.decode({pieces_.piece(id)}, true) : "");
    document_token_ = find_document_token();
  }

  std::vector<int32_t> encode(std::string_view text) const override { return encode_text(text, false); }
  std::vector<int32_t> encode_with_special_tokens(std::string_view text) const override {
    return encode_text(text, true);
  }

  std::string decode(const std::vector<int32_t>& ids) const override {
    std::vector<std::string> pieces;
    for (size_t i = 0; i < ids.size(); ++i) {
      check(ids[i], i);
      if (pieces_.speaks(ids[i])) pieces.push_back(pieces_.piece(ids[i]));
    }
    return pieces.empty() ? "" : decoder_.decode(std::move(pieces));
  }
  std::string decode_next(int32_t id) const override {
    check(id, 0);
    return texts_[static_cast<size_t>(id)];
  }

  int64_t vocab() const override { return pieces_.size(); }
  std::string name() const override { return name_; }
  int32_t document_token() const override { return document_token_; }
  std::string file_name() const override { return hf_tokenizer_file; }
  std::string serialise() const override { return bytes_; }

 private:
  static JsonView or_null(const JsonView& root, const char* key) {
    static const nlohmann::json null;
    static const std::string nowhere = "";
    const auto found = root.find(key);
    return found ? *found : JsonView(null, nowhere);
  }
  static std::vector<AddedToken> read_added(const JsonView& root) {
    const JsonView value = or_null(root, "added_tokens");
    return value.is_null() ? std::vector<AddedToken>() : read_added_tokens(value, largest_piece_id);
  }

  void find_in_text(const AddedToken& token, const JsonView& root, size_t index) {
    if (!token.normalized) return exact_.add(token.content, token);
    Section content{token.content, false};
    normalizer_.apply(content);
    if (content.text.empty())
      root.at("added_tokens").at(index).at("content").refuse("nothing is left of it once it is normalised");
    normalized_.add(content.text, token);
    pieces_.rename(token.id, content.text);  // the library gives back what it found
  }

  int32_t find_document_token() const {
    for (const char* name : text_ends)
      for (const AddedToken& token : added_)
        if (token.special && token.content == name) return token.id;
    return template_.first_token();
  }

  void check(int32_t id, size_t position) const {
    if (id < 0 || id >= vocab())
      fail(ExitCode::data,
           "token {} at position {} is none of the {} of {}; was it made by another tokenizer?", id, position,
           vocab(), name_);
  }

  // ---- encoding ----

  std::unique_ptr<Desk> take_desk() const {
    const std::lock_guard lock(mutex_);
    if (desks_.empty()) return std::make_unique<Desk>();
    std::unique_ptr<Desk> desk = std::move(desks_.back());
    desks_.pop_back();
    return desk;
  }
  void give_back(std::unique_ptr<Desk> desk) const {
    const std::lock_guard lock(mutex_);
    desks_.push_back(std::move(desk));
  }

  std::vector<int32_t> encode_text(std::string_view text, bool add_special_tokens) const {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = repaired_utf8(text);
    std::vector<int32_t> ids;
    std::unique_ptr<Desk> desk = take_desk();
    exact_.walk(
        text, [&](int32_t id) { ids.push_back(id); },
        [&](size_t begin, size_t end) {
          encode_section({std::string(text.substr(begin, end - begin)), begin == 0}, *desk, ids);
        });
    give_back(std::move(desk));
    return template_.apply(std::move(ids), add_special_tokens);
  }

  void encode_section(Section section, Desk& desk, std::vector<int32_t>& ids) const {
    normalizer_.apply(section);
    normalized_.walk(
        section.text, [&](int32_t id) { ids.push_back(id); },
        [&](size_t begin, size_t end) {
          const Words words =
              pre_tokenizer_.apply({section.text.substr(begin, end - begin), section.first && begin == 0});
          for (const Span& span : words.spans)
            encode_word(std::string_view(words.text).substr(span.begin, span.end - span.begin), desk, ids);
        });
  }

  void encode_word(std::string_view word, Desk& desk, std::vector<int32_t>& ids) const {
    if (bpe_.cuts_at_blanks() && !(bpe_.model().ignore_merges && bpe_.is_piece(word)))
      for (size_t at = word.find(Bpe::blank, 1); at != std::string_view::npos;) {
        if (word.substr(0, at).ends_with(Bpe::blank)) {
          at = word.find(Bpe::blank, at + 1);
          continue;
        }
        encode_part(word.substr(0, at), desk, ids);
        word.remove_prefix(at);
        at = word.find(Bpe::blank, 1);
      }
    encode_part(word, desk, ids);
  }

  void encode_part(std::string_view word, Desk& desk, std::vector<int32_t>& ids) const {
    if (desk.cache.find(word, ids)) return;
    const size_t before = ids.size();
    if (pre_tokenizer_.byte_level())
      bpe_.encode(desk.spelling = to_byte_level(word), ids);
    else
      bpe_.encode(word, ids);
    desk.cache.store(word, ids.data() + before, ids.size() - before);
  }

  std::string bytes_, name_;
  Bpe bpe_;
  HfNormalizer normalizer_;
  HfPreTokenizer pre_tokenizer_;
  HfDecoder decoder_;
  std::vector<AddedToken> added_;
  PieceTable pieces_;
  HfTemplate template_;
  TokenFinder exact_, normalized_;  // in the text as it is, and once it is normalised
  std::vector<std::string> texts_;  // of every id, inside a text
  int32_t document_token_ = -1;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Desk>> desks_;  // that no thread sits at
};

}  // namespace

std::unique_ptr<Tokenizer> read_hf_tokenizer(std::string bytes, const std::string& path,
                                             const std::string& name) {
  require_unicode("the tokenizer " + path);
  if (bytes.size() > largest_hf_tokenizer)
    fail(ExitCode::data, "{}: {} bytes, more than the {} that are read", path, bytes.size(),
         largest_hf_tokenizer);
  const nlohmann::json parsed = parse_json(bytes, path, deepest_hf_tokenizer);
  const JsonView root(parsed, path);
  return std::make_unique<HfTokenizer>(std::move(bytes), root, name);
}

std::unique_ptr<Tokenizer> load_hf_tokenizer(const std::string& path, const std::string& name) {
  require_unicode("the tokenizer " + path);
  if (!path_exists(path))
    fail(ExitCode::data, "{}: no such tokenizer file; {}", path, missing_data_advice(path));
  {
    const InputFile file(path);
    if (file.size() > largest_hf_tokenizer)
      fail(ExitCode::data, "{}: {} bytes, more than the {} that are read", path, file.size(),
           largest_hf_tokenizer);
  }
  return read_hf_tokenizer(read_file(path), path, name);
}

}  // namespace kata
