#include "data/tokenize.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/log.h"
#include "data/shard.h"

namespace kata {

namespace fs = std::filesystem;

namespace {

constexpr size_t piece_bytes = size_t{1} << 20;
constexpr const char* validation_name = "validation.bin";

std::string train_name(size_t index) {
  return fmt::format("train-{:06}.bin", index);
}

bool is_shard_name(const std::string& name) {
  return name == validation_name || (name.starts_with("train-") && name.ends_with(".bin"));
}

// ---- input ----

std::string name_of(const std::string& input) {
  return input == "-" ? "standard input" : input;
}

// A file's bytes: mapped, or read where it is a pipe.
class Text {
 public:
  explicit Text(const std::string& path) {
    std::error_code ignored;
    if (path != "-" && fs::is_regular_file(path, ignored)) {
      map_.emplace(path, MappedFile::Access::sequential);
      view_ = {reinterpret_cast<const char*>(map_->data()), map_->size()};
    } else {
      copy_ = std::make_unique<std::string>(read_file(path == "-" ? "/dev/stdin" : path));
      view_ = *copy_;
    }
  }
  std::string_view view() const { return view_; }

 private:
  std::optional<MappedFile> map_;
  std::unique_ptr<std::string> copy_;  // behind a pointer, so that the view survives a move
  std::string_view view_;
};

// Bytes that say what a file is, and how to get its text.
struct Signature {
  std::string_view start;
  const char *kind, *tool;
};
constexpr std::array<Signature, 5> compressed = {{{"\x1f\x8b", "gzip", "gzip -dc"},
                                                  {"BZh", "bzip2", "bzip2 -dc"},
                                                  {"\xfd"
                                                   "7zXZ",
                                                   "xz", "xz -dc"},
                                                  {"\x28\xb5\x2f\xfd", "zstd", "zstd -dc"},
                                                  {"PK\x03\x04", "zip", "unzip -p"}}};

void refuse_binary(const std::string& path, std::string_view text) {
  for (const Signature& s : compressed) {
    if (!text.starts_with(s.start)) continue;
    const std::string how = path == "-"
                                ? fmt::format("put {} | before katadata", s.tool)
                                : fmt::format("{} {} | katadata tokenize --input - ...", s.tool, path);
    fail(ExitCode::usage, "{} is compressed ({}), expected text; decompress it: {}", name_of(path), s.kind,
         how);
  }
  if (is_shard_start(text))
    fail(ExitCode::usage, "{} is a token shard already, expected text; name it in data.train as it is",
         name_of(path));
}

std::vector<Text> open_inputs(const std::vector<std::string>& paths) {
  if (std::count(paths.begin(), paths.end(), "-") > 1)
    fail(ExitCode::usage, "standard input (-) is named twice as an input; it can be read once");
  std::vector<Text> texts;
  for (const std::string& path : paths) {
    texts.emplace_back(path);
    refuse_binary(path, texts.back().view());
  }
  if (std::all_of(texts.begin(), texts.end(), [](const Text& text) { return text.view().empty(); }))
    fail(ExitCode::data, "{}: no text, 0 bytes; give a text file", name_of(paths[0]));
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].view().empty()) logger().warn("{} is empty", name_of(paths[i]));
  return texts;
}

// ---- where training ends and validation begins ----

int64_t total_bytes(const std::vector<Text>& texts) {
  int64_t total = 0;
  for (const Text& text : texts) total += static_cast<int64_t>(text.view().size());
  return total;
}

// Bytes begin .. end - 1 of the joined text, as parts of the files.
std::vector<std::string_view> range_of(const std::vector<Text>& texts, int64_t begin, int64_t end) {
  std::vector<std::string_view> parts;
  int64_t first = 0;
  for (const Text& text : texts) {
    const auto size = static_cast<int64_t>(text.view().size());
    const int64_t from = std::clamp(begin - first, int64_t{0}, size),
                  to = std::clamp(end - first, int64_t{0}, size);
    if (from < to)
      parts.push_back(text.view().substr(static_cast<size_t>(from), static_cast<size_t>(to - from)));
    first += size;
  }
  return parts;
}

// The validation part starts with a whole character of UTF-8.
int64_t split_point(const std::vector<Text>& texts, double fraction) {
  const int64_t total = total_bytes(texts);
  int64_t split = total - static_cast<int64_t>(static_cast<double>(total) * fraction);
  for (int step = 0; step < 3 && split < total; ++step, ++split) {
    const auto byte = static_cast<unsigned char>(range_of(texts, split, split + 1)[0][0]);
    if ((byte & 0xC0) != 0x80) break;
  }
  return split;
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

// In pieces, so that memory stays small; a line is not cut where it fits into one, so that a tokenizer that
// looks at neighbouring characters sees what it would see in the whole text.
void encode_into(ShardSeries& series, const std::vector<std::string_view>& parts,
                 const Tokenizer& tokenizer) {
  for (std::string_view rest : parts)
    while (!rest.empty()) {
      size_t size = std::min(rest.size(), piece_bytes);
      const size_t line_end = rest.substr(0, size).rfind('\n');
      if (size < rest.size() && line_end != std::string_view::npos) size = line_end + 1;
      series.add(tokenizer.encode(rest.substr(0, size)));
      rest.remove_prefix(size);
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
        name_of(options.inputs[0]), train);
  if (options.validation_fraction > 0 && validation < 2)
    fail(ExitCode::data,
         "{}: expected at least 2 tokens to validate on, found {}; give more text, raise "
         "--validation-fraction, or set it to 0 for no validation file",
         name_of(options.inputs[0]), validation);
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
  const std::vector<Text> texts = open_inputs(options.inputs);
  make_directories(options.output);
  const std::vector<fs::path> old = existing_shards(options.output);
  if (!old.empty() && !options.overwrite)
    fail(ExitCode::usage,
         "{} exists; add --overwrite to replace the shards in {}, or choose another --output",
         old[0].string(), options.output);

  const int64_t total = total_bytes(texts), split = split_point(texts, options.validation_fraction);
  const Staging staging(options.output);
  ShardSeries train(staging.path(), tokenizer->vocab(), options.shard_tokens, train_name);
  encode_into(train, range_of(texts, 0, split), *tokenizer);
  ShardSeries validation(staging.path(), tokenizer->vocab(), largest_shard,
                         [](size_t) { return validation_name; });
  encode_into(validation, range_of(texts, split, total), *tokenizer);

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
  for (const std::string& path : shards) {
    const Shard shard(path);
    shard.check_ids(tokenizer.vocab());
    std::vector<int32_t> ids;
    for (int64_t begin = 0; begin < shard.tokens(); begin += block) {
      const int64_t count = std::min(block, shard.tokens() - begin);
      ids.resize(static_cast<size_t>(count));
      shard.read(begin, count, ids.data());
      sink(tokenizer.decode(ids));
    }
  }
}

}  // namespace kata
