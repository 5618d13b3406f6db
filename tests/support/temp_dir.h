// A folder of its own for a test, deleted with all that is in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

#include "base/error.h"

namespace kata::test {

class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "kata-test-XXXXXX").string();
    KATA_CHECK(::mkdtemp(name.data()) != nullptr, "cannot make {}", name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A folder whose files live in memory, if this machine has one. Syncing costs nothing there, and a test that
// kills processes (not machines) loses nothing by it.
inline std::filesystem::path memory_folder() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

}  // namespace kata::test
