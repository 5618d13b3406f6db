#include "data/text_input.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "data/shard.h"

namespace kata {

namespace fs = std::filesystem;

TextInput::TextInput(const std::string& path) {
  std::error_code ignored;
  if (path != "-" && fs::is_regular_file(path, ignored)) {
    map_.emplace(path, MappedFile::Access::sequential);
    view_ = {reinterpret_cast<const char*>(map_->data()), map_->size()};
  } else {
    copy_ = std::make_unique<std::string>(read_file(path == "-" ? "/dev/stdin" : path));
    view_ = *copy_;
  }
}

std::string input_name(const std::string& input) {
  return input == "-" ? "standard input" : input;
}

namespace {

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
    fail(ExitCode::usage, "{} is compressed ({}), expected text; decompress it: {}", input_name(path), s.kind,
         how);
  }
  if (is_shard_start(text))
    fail(ExitCode::usage, "{} is a token shard already, expected text; name it in data.train as it is",
         input_name(path));
}

}  // namespace

std::vector<TextInput> open_texts(const std::vector<std::string>& paths) {
  if (std::count(paths.begin(), paths.end(), "-") > 1)
    fail(ExitCode::usage, "standard input (-) is named twice as an input; it can be read once");
  std::vector<TextInput> texts;
  for (const std::string& path : paths) {
    texts.emplace_back(path);
    refuse_binary(path, texts.back().view());
  }
  if (std::all_of(texts.begin(), texts.end(), [](const TextInput& text) { return text.view().empty(); }))
    fail(ExitCode::data, "{}: no text, 0 bytes; give a text file", input_name(paths[0]));
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].view().empty()) logger().warn("{} is empty", input_name(paths[i]));
  return texts;
}

}  // namespace kata
