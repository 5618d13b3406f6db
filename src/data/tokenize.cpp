#include "data/tokenize.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/parallel.h"
#include "data/shard.h"
#include "data/text_input.h"

namespace kata {

namespace fs = std::filesystem;

namespace {

constexpr size_t piece_bytes = size_t{1} << 20;
constexpr size_t pieces_at_once = 32;
constexpr const char* validation_name = "validation.bin";

std::string train_name(size_t index) {
  return fmt::format("train-{:06}.bin", index);
}

bool is_shard_name(const std::string& name) {
  return name == validation_name || (name.starts_with("train-") && name.ends_with(".bin"));
}

// ---- where training ends and validation begins ----

int64_t total_bytes(const std::vector<TextInput>& texts) {
  int64_t total = 0;
  for (const TextInput& text : texts) total += static_cast<int64_t>(text.view().size());
  return total;
}

// A part of the text that is encoded in one go.
struct Piece {
  std::string_view text;
  bool begins_document = false;
};

// Bytes begin .. end - 1 of the joined text, as parts of the files.
std::vector<Piece> range_of(const std::vector<TextInput>& texts, int64_t begin, int64_t end) {
  std::vector<Piece> parts;
  int64_t first = 0;
  for (const TextInput& text : texts) {
    const auto size = static_cast<int64_t>(text.view().size());
    const int64_t from = std::clamp(begin - first, int64_t{0}, size),
                  to = std::clamp(end - first, int64_t{0}, size);
    if (from < to)
      parts.push_back(
          {text.view().substr(static_cast<size_t>(from), static_cast<size_t>(to - from)), from == 0});
    first += size;
  }
  return parts;
}

// The validation part starts with a whole character of UTF-8, or with a whole document.
int64_t split_point(const std::vector<TextInput>& texts, const TokenizeOptions& options) {
  const int64_t total = total_bytes(texts);
  const int64_t wanted =
      total - static_cast<int64_t>(static_cast<double>(total) * options.validation_fraction);
  int64_t split = wanted;
  if (options.documents == "form-feed") {
    for (const Piece& part : range_of(texts, wanted, total)) {
      if (part.begins_document && split > wanted) return split;
      const size_t at = part.text.find('\f');
      if (at != std::string_view::npos) return split + static_cast<int64_t>(at) + 1;
      split += static_cast<int64_t>(part.text.size());
    }
    return split;
  }
  for (int step = 0; step < 3 && split < total; ++step, ++split) {
    const auto byte = static_cast<unsigned char>(range_of(texts, split, split + 1)[0].text[0]);
    if ((byte & 0xC0) != 0x80) break;
  }
  return split;
}

// The documents of a part, which a form feed separates. Where the split lies behind one, a document begins.
void add_documents(std::vector<Piece>& documents, Piece part) {
  part.begins_document = true;
  for (;;) {
    const size_t size = std::min(part.text.find('\f'), part.text.size());
    if (size > 0) documents.push_back({part.text.substr(0, size), true});
    if (size == part.text.size()) return;
    part.text.remove_prefix(size + 1);
  }
}

// So that memory stays small; a line is not cut where it fits into a piece, so that a tokenizer that looks at
// neighbouring characters sees what it would see in the whole text.
void add_pieces(std::vector<Piece>& pieces, Piece document) {
  while (!document.text.empty()) {
    size_t size = std::min(document.text.size(), piece_bytes);
    const size_t line_end = document.text.substr(0, size).rfind('\n');
    if (size < document.text.size() && line_end != std::string_view::npos) size = line_end + 1;
    pieces.push_back({document.text.substr(0, size), document.begins_document});
    document = {document.text.substr(size), false};
  }
}

std::vector<Piece> pieces_of(const std::vector<Piece>& parts, const std::string& documents) {
  std::vector<Piece> whole, pieces;
  for (const Piece& part : parts)
    if (documents == "form-feed")
      add_documents(whole, part);
    else
      whole.push_back(part);
  for (const Piece& document : whole) add_pieces(pieces, document);
  return pieces;
}

// ---- output ----

// Collects tokens and writes a shard whenever `limit` have come.
class ShardSeries {
 public:
  ShardSeries(std::string folder, int64_t vocab, int64_t limit, std::function<std::string(size_t)> name)
      : folder_(std::move(folder)),
        vocab_(vocab),
        limit_(static_cast<size_t>(limit)),
        name_(std::move(name)) {}

  void add(std::vector<int32_t> tokens) {
    for (size_t done = 0; done < tokens.size();) {
      const size_t part = std::min(tokens.size() - done, limit_ - pending_.size());
      pending_.insert(pending_.end(), tokens.begin() + static_cast<int64_t>(done),
                      tokens.begin() + static_cast<int64_t>(done + part));
      done += part;
      if (pending_.size() == limit_) write();
    }
  }
  std::vector<TokenizedFile> finish() {
    if (!pending_.empty()) write();
    return files_;
  }

 private:
  void write() {
    files_.push_back({name_(files_.size()), static_cast<int64_t>(pending_.size())});
    write_shard(folder_ + "/" + files_.back().path, pending_, vocab_);
    pending_.clear();
  }

  std::string folder_;
  int64_t vocab_;
  size_t limit_;
  std::function<std::string(size_t)> name_;
  std::vector<int32_t> pending_;
  std::vector<TokenizedFile> files_;
};

void encode_into(ShardSeries& series, const std::vector<Piece>& pieces, const Tokenizer& tokenizer) {
  const int32_t document_token = tokenizer.document_token();
  std::vector<std::vector<int32_t>> encoded(pieces_at_once);
  for (size_t begin = 0; begin < pieces.size(); begin += pieces_at_once) {
    const size_t count = std::min(pieces_at_once, pieces.size() - begin);
    parallel_for(static_cast<int64_t>(count), [&](int64_t i) {
      encoded[static_cast<size_t>(i)] = tokenizer.encode(pieces[begin + static_cast<size_t>(i)].text);
    });
    for (size_t i = 0; i < count; ++i) {
      if (pieces[begin + i].begins_document && document_token >= 0) series.add({document_token});
      series.add(std::move(encoded[i]));
    }
  }
}

// A folder beside the final files, deleted with what is left in it.
class Staging {
 public:
  explicit Staging(const std::string& parent) : path_(parent + "/.tmp-tokenize-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) fail_file(ExitCode::data, "cannot write in", parent, errno);
  }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<fs::path> existing_shards(const std::string& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (is_shard_name(it->path().filename().string())) found.push_back(it->path());
  if (error) fail_file(ExitCode::data, "cannot list the folder", folder, error.value());
  std::sort(found.begin(), found.end());
  return found;
}

// The old set goes, the new one comes; what cannot be done is said with its path.
void publish(const Staging& staging, const std::string& folder, const std::vector<fs::path>& old,
             std::vector<TokenizedFile>& files) {
  std::error_code error;
  for (const fs::path& path : old) {
    fs::remove(path, error);
    if (error) fail_file(ExitCode::data, "cannot replace", path.string(), error.value());
  }
  for (TokenizedFile& file : files) {
    const std::string target = folder + "/" + file.path;
    fs::rename(staging.path() + "/" + file.path, target, error);
    if (error) fail_file(ExitCode::data, "cannot write", target, error.value());
    file.path = target;
  }
  sync_folder(folder);
}

void check_sizes(const TokenizeOptions& options, int64_t train, int64_t validation) {
  if (train < 2)
    fail(
        ExitCode::data,
        "{}: expected at least 2 tokens to train on, found {}; give more text or lower --validation-fraction",
        input_name(options.inputs[0]), train);
  if (options.validation_fraction > 0 && validation < 2)
    fail(ExitCode::data,
         "{}: expected at least 2 tokens to validate on, found {}; give more text, raise "
         "--validation-fraction, or set it to 0 for no validation file",
         input_name(options.inputs[0]), validation);
  if (validation > largest_shard)
    fail(ExitCode::usage,
         "{} tokens to validate on, but a shard holds at most {}; lower --validation-fraction", validation,
         largest_shard);
}

int64_t tokens_of(const std::vector<TokenizedFile>& files) {
  int64_t tokens = 0;
  for (const TokenizedFile& file : files) tokens += file.tokens;
  return tokens;
}

}  // namespace

TokenizeResult tokenize(const TokenizeOptions& options) {
  KATA_CHECK(!options.inputs.empty() && options.shard_tokens > 0 && options.shard_tokens <= largest_shard &&
                 options.validation_fraction >= 0 && options.validation_fraction < 1,
             "{} inputs, shards of {}, fraction {}", options.inputs.size(), options.shard_tokens,
             options.validation_fraction);
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const std::vector<TextInput> texts = open_texts(options.inputs);
  make_directories(options.output);
  const std::vector<fs::path> old = existing_shards(options.output);
  if (!old.empty() && !options.overwrite)
    fail(ExitCode::usage,
         "{} exists; add --overwrite to replace the shards in {}, or choose another --output",
         old[0].string(), options.output);

  const int64_t total = total_bytes(texts), split = split_point(texts, options);
  const Staging staging(options.output);
  ShardSeries train(staging.path(), tokenizer->vocab(), options.shard_tokens, train_name);
  encode_into(train, pieces_of(range_of(texts, 0, split), options.documents), *tokenizer);
  ShardSeries validation(staging.path(), tokenizer->vocab(), largest_shard,
                         [](size_t) { return validation_name; });
  encode_into(validation, pieces_of(range_of(texts, split, total), options.documents), *tokenizer);

  TokenizeResult result{split, total - split, train.finish()};
  const std::vector<TokenizedFile> last = validation.finish();
  check_sizes(options, tokens_of(result.files), tokens_of(last));
  result.files.insert(result.files.end(), last.begin(), last.end());
  publish(staging, options.output, old, result.files);
  return result;
}

void detokenize(const std::vector<std::string>& shards, const Tokenizer& tokenizer,
                const std::function<void(std::string_view)>& sink) {
  constexpr int64_t block = int64_t{1} << 20;
  bool first = true;
  for (const std::string& path : shards) {
    const Shard shard(path);
    shard.check_ids(tokenizer.vocab());
    std::vector<int32_t> ids;
    for (int64_t begin = 0; begin < shard.tokens(); begin += block) {
      const int64_t count = std::min(block, shard.tokens() - begin);
      ids.resize(static_cast<size_t>(count));
      shard.read(begin, count, ids.data());
      std::string text;
      if (first)  // where a text begins, some tokenizers leave out a blank of theirs
        text = tokenizer.decode(ids);
      else
        for (const int32_t id : ids) text += tokenizer.decode_next(id);
      first = false;
      sink(text);
    }
  }
}

double bytes_per_token(const std::vector<std::string>& shards, const Tokenizer& tokenizer) {
  int64_t bytes = 0, tokens = 0;
  for (const std::string& path : shards) tokens += Shard(path).tokens();
  detokenize(shards, tokenizer, [&](std::string_view text) { bytes += static_cast<int64_t>(text.size()); });
  return static_cast<double>(bytes) / static_cast<double>(tokens);
}

}  // namespace kata
