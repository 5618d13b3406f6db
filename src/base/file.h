// Files: read whole, at an offset or mapped; written so that a path holds the old bytes or the new ones,
// never a part. Every failure is one line: what failed, the path, the system's reason, what to do about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32.h"
#include "base/error.h"

namespace kata {

// "cannot read a/b: No such file or directory; check the spelling of the path". `what` is "cannot read" or
// the like, `number` an errno value.
[[noreturn]] void fail_file(ExitCode code, std::string_view what, const std::string& path, int number);
std::string file_advice(int number);  // what to do about an errno value; empty when nothing helps

// Whether something, or a folder, is at a path. Where that cannot be known (no permission, a path below a
// file), an Error.
bool path_exists(const std::string& path, ExitCode code = ExitCode::data);
bool is_folder(const std::string& path, ExitCode code = ExitCode::data);

// The whole file (a pipe or a device: until its end, at most 64 MiB).
std::string read_file(const std::string& path, ExitCode code = ExitCode::data);

// A regular file open for reading. Moved, not copied.
class InputFile {
 public:
  explicit InputFile(const std::string& path, ExitCode code = ExitCode::data);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  void read_at(uint64_t offset, void* to, size_t bytes) const;  // exactly so many; the file's end is an Error
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  int descriptor() const { return descriptor_; }

 private:
  std::string path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// A regular file mapped for reading. A file that someone shortens while it is mapped kills the process
// (SIGBUS): files that are in use must be replaced by rename, as write_file_atomic does, never cut.
class MappedFile {
 public:
  enum class Access { normal, sequential, random };

  explicit MappedFile(const InputFile& file, Access access = Access::normal);
  explicit MappedFile(const std::string& path, Access access = Access::normal)
      : MappedFile(InputFile(path), access) {}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::byte* data() const { return data_; }  // null for an empty file
  uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

struct FileSummary {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

// A buffered stream into an open descriptor, which stays the caller's. Each write is checked.
class FileWriter {
 public:
  // `expected` bytes (0: unknown) only make the message of a full disk better.
  FileWriter(int descriptor, std::string path, uint64_t expected);

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void flush();
  FileSummary summary() const { return {bytes_, crc_.value()}; }

 private:
  void put(const char* data, size_t bytes);

  int descriptor_;
  std::string path_;
  uint64_t expected_;
  uint64_t bytes_ = 0;    // accepted
  uint64_t written_ = 0;  // handed to the system
  Crc32 crc_;
  std::vector<char> buffer_;
};

// Writes `.tmp-*` beside the path, then fsync, rename, fsync of the folder. On any failure, a throwing
// callback included, the temporary is gone and the old file is as it was. A symbolic link is followed; what
// is no regular file (/dev/stdout, a pipe) is written directly. An existing file keeps its permissions.
FileSummary write_file_atomic(const std::string& path, std::string_view bytes);
FileSummary write_file_atomic(const std::string& path, const std::function<void(FileWriter&)>& fill,
                              uint64_t expected = 0);

// Makes what was renamed or created in a folder survive a power failure.
void sync_folder(const std::string& path);

// The folder and its parents; nothing to do where they exist.
void make_directories(const std::string& path);

// Deletes entries named `.tmp-*`: what a killed process left. Only for folders that one program owns.
void remove_temporaries(const std::string& folder);

// The files that shell patterns (*, ?, [..], ~) name: patterns in their order, each sorted by bytes. A
// pattern without a match, and a file matched twice, is an Error that names the pattern.
std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns);

}  // namespace kata
