// Text files as the commands of katadata take them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace kata {

// A file's bytes: mapped, or read where it is a pipe. "-" is standard input.
class TextInput {
 public:
  explicit TextInput(const std::string& path);
  std::string_view view() const { return view_; }

 private:
  std::optional<MappedFile> map_;
  std::unique_ptr<std::string> copy_;  // behind a pointer, so that the view survives a move
  std::string_view view_;
};

// The path, or "standard input".
std::string input_name(const std::string& path);

// All files, opened. ExitCode::usage for one that is no text (compressed, a token shard) and for standard
// input named twice, ExitCode::data where there is no text at all; a warning for an empty file among others.
std::vector<TextInput> open_texts(const std::vector<std::string>& paths);

}  // namespace kata
