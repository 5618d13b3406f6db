#include "eval/suite_files.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "config/config_text.h"
#include "config/schema.h"

namespace kata {

namespace fs = std::filesystem;

std::vector<std::string> suite_folders() {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& folder) {
    std::error_code error;
    if (fs::is_directory(folder, error)) folders.push_back(folder.string());
  };
  add("configs/suites");
  std::error_code error;
  fs::path above = fs::read_symlink("/proc/self/exe", error).parent_path();
  constexpr int levels = 4;  // <clone>/build/<preset>/bin, <prefix>/bin
  for (int i = 0; i < levels && above.has_relative_path(); ++i) {
    above = above.parent_path();
    add(above / "configs/suites");
    add(above / "share/kata/configs/suites");
  }
  return folders;
}

std::string find_suite(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() != ".yaml") continue;
      if (it->path().stem() == name) return it->path().string();
      names.push_back(it->path().stem().string());
    }
  }
  if (names.empty())
    fail(ExitCode::usage,
         "no suite is found: neither configs/suites here nor near the program; give the suite's file with "
         "--config");
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const std::string near = nearest_name(name, names);
  fail(ExitCode::usage, "--suite {}: no such suite{}; the suites are: {}", printable(name),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near), joined(names));
}

}  // namespace kata
