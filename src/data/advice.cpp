#include "data/advice.h"

#include <filesystem>

#include "base/file.h"

namespace kata {

namespace {

namespace fs = std::filesystem;

// A folder that is made, not shipped, and the command that makes it.
struct MadeFolder {
  const char *folder, *command;
};
constexpr MadeFolder made_folders[] = {{"data/lm", "./scripts/make_lm_corpus.sh"},
                                       {"data/corpus",
                                        "gzip -dc data/kjv.txt.gz | katadata tokenize --input - --output "
                                        "data/corpus (or ./scripts/quickstart.sh)"}};

// Null for a path or pattern that lies in none of them.
const char* command_for(const std::string& path) {
  const std::string parent = fs::path(path).lexically_normal().parent_path().string();
  for (const MadeFolder& made : made_folders)
    if (parent == made.folder || parent.ends_with(std::string("/") + made.folder)) return made.command;
  return nullptr;
}

}  // namespace

std::string missing_data_advice(const std::string& path) {
  if (const char* command = command_for(path)) return fmt::format("make it with: {}", command);
  std::error_code ignored;
  return fmt::format("check the spelling (relative paths start at {})", fs::current_path(ignored).string());
}

std::vector<std::string> expand_data_patterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (command_for(pattern) == nullptr) continue;
    try {
      expand_patterns({pattern});
    } catch (const Error&) {
      fail(ExitCode::data, "{}: no such data here; {}", pattern, missing_data_advice(pattern));
    }
  }
  return expand_patterns(patterns);
}

}  // namespace kata
