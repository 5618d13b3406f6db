#include "base/file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <glob.h>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace kata {

namespace fs = std::filesystem;

namespace {

constexpr size_t largest_transfer = size_t{1} << 30;  // Linux moves less than 2 GiB a call
constexpr size_t largest_stream = size_t{1} << 26;    // a pipe or device that never ends is refused here
constexpr size_t stream_step = size_t{1} << 20;

int open_for_reading(const std::string& path, ExitCode code, struct stat& status) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_file(code, "cannot read", path, errno);
  int number = 0;
  if (::fstat(descriptor, &status) != 0)
    number = errno;
  else if (S_ISDIR(status.st_mode))
    number = EISDIR;
  if (number == 0) return descriptor;
  ::close(descriptor);
  fail_file(code, "cannot read", path, number);
}

// Up to `bytes` from where the descriptor stands; fewer only at the end.
size_t read_some(int descriptor, char* to, size_t bytes, const std::string& path, ExitCode code) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(descriptor, to + done, std::min(bytes - done, largest_transfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(code, "cannot read", path, errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

// Closes at the end of a scope; `release` hands the descriptor on.
struct Descriptor {
  int number;
  explicit Descriptor(int n) : number(n) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int release() { return std::exchange(number, -1); }
};

}  // namespace

std::string file_advice(int number) {
  switch (number) {
    case ENOENT:
      return "check the spelling of the path";
    case EISDIR:
      return "give a file, not a folder";
    case ENOTDIR:
      return "a part of the path is a file, not a folder";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and of the folders above it";
    case ENOSPC:
    case EDQUOT:
      return "free some space there or choose a folder on another disk";
    case EFBIG:
      return "raise the file size limit (ulimit -f) or choose another file system";
    case EROFS:
      return "choose a folder on a writable file system";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENAMETOOLONG:
      return "choose a shorter path";
    default:
      return "";
  }
}

void fail_file(ExitCode code, std::string_view what, const std::string& path, int number) {
  const std::string advice = file_advice(number);
  fail(code, "{} {}: {}{}{}", what, path.empty() ? "\"\" (an empty path)" : path,
       std::generic_category().message(number), advice.empty() ? "" : "; ", advice);
}

bool path_exists(const std::string& path, ExitCode code) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT) fail_file(code, "cannot read", path, errno);
  return false;
}

bool is_folder(const std::string& path, ExitCode code) {
  return path_exists(path, code) && fs::is_directory(path);
}

std::string read_file(const std::string& path, ExitCode code) {
  struct stat status {};
  const Descriptor file(open_for_reading(path, code, status));
  std::string text;
  // The size is only a hint: files of /proc say 0, and a log may grow while it is read.
  size_t step = S_ISREG(status.st_mode) ? static_cast<size_t>(status.st_size) + 1 : stream_step;
  while (true) {
    const size_t begin = text.size();
    text.resize(begin + step);
    text.resize(begin + read_some(file.number, text.data() + begin, step, path, code));
    if (text.size() < begin + step) return text;
    if (!S_ISREG(status.st_mode) && text.size() > largest_stream)
      fail(code, "cannot read {}: more than 64 MiB from a pipe or device; write it to a file first", path);
    step = stream_step;
  }
}

InputFile::InputFile(const std::string& path, ExitCode code) : path_(path) {
  struct stat status {};
  Descriptor file(open_for_reading(path, code, status));
  if (!S_ISREG(status.st_mode))
    fail(code, "cannot read {}: it is a pipe or device; a regular file is needed here", path);
  size_ = static_cast<uint64_t>(status.st_size);
  descriptor_ = file.release();
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read_at(uint64_t offset, void* to, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(descriptor_, static_cast<char*>(to) + done,
                              std::min(bytes - done, largest_transfer), static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_file(ExitCode::data, "cannot read", path_, errno);
    if (n == 0)
      fail(ExitCode::data, "cannot read {}: it ends at byte {}, expected {} bytes at {}; it is truncated",
           path_, offset + done, bytes, offset);
    done += static_cast<size_t>(n);
  }
}

MappedFile::MappedFile(const InputFile& file, Access access) : size_(file.size()) {
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) fail_file(ExitCode::data, "cannot map", file.path(), errno);
  data_ = static_cast<const std::byte*>(address);
  const int advice = access == Access::sequential ? MADV_SEQUENTIAL
                     : access == Access::random   ? MADV_RANDOM
                                                  : MADV_NORMAL;
  ::madvise(address, size_, advice);  // a hint: failure changes nothing
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

FileWriter::FileWriter(int descriptor, std::string path, uint64_t expected)
    : descriptor_(descriptor), path_(std::move(path)), expected_(expected) {
  buffer_.reserve(stream_step);
}

void FileWriter::write(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  bytes_ += bytes;
  crc_.update(data, bytes);
  if (buffer_.size() + bytes > buffer_.capacity()) flush();
  if (bytes >= buffer_.capacity())
    put(from, bytes);
  else
    buffer_.insert(buffer_.end(), from, from + bytes);
}

void FileWriter::flush() {
  put(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void FileWriter::put(const char* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(descriptor_, data + done, std::min(bytes - done, largest_transfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int number = errno;
      const uint64_t wanted = std::max({expected_, bytes_, written_ + bytes - done});
      const std::string advice = file_advice(number);
      fail(ExitCode::data, "cannot write {}: {} after {} of {}{} bytes{}{}", path_,
           std::generic_category().message(number), written_, expected_ == 0 ? "at least " : "", wanted,
           advice.empty() ? "" : "; ", advice);
    }
    done += static_cast<size_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
}

namespace {

// Streams of this process, whatever they are connected to: replacing them by a file would lose them.
bool names_a_stream(const std::string& path) {
  return path == "/dev/stdout" || path == "/dev/stderr" || path.starts_with("/dev/fd/") ||
         path.starts_with("/proc/");
}

FileSummary write_directly(const std::string& path, const std::function<void(FileWriter&)>& fill,
                           uint64_t expected) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (file.number < 0) fail_file(ExitCode::data, "cannot write", path, errno);
  FileWriter writer(file.number, path, expected);
  fill(writer);
  writer.flush();
  return writer.summary();
}

// A new file `.tmp-<process>-<count>` in a folder, deleted at the end of the scope unless it was renamed.
class Temporary {
 public:
  Temporary(const fs::path& folder, const std::string& target) {
    static std::atomic<uint64_t> count{0};
    do {
      path_ = (folder / fmt::format(".tmp-{}-{}", ::getpid(), count++)).string();
      file_.number = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file_.number < 0 && errno == EEXIST);
    if (file_.number < 0) fail_file(ExitCode::data, "cannot write", target, errno);
  }
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int descriptor() const { return file_.number; }

  void sync_and_rename(const std::string& target) {
    if (::fsync(file_.number) != 0) fail_file(ExitCode::data, "cannot write", target, errno);
    if (::close(file_.release()) != 0 && errno != EINTR)
      fail_file(ExitCode::data, "cannot write", target, errno);
    if (::rename(path_.c_str(), target.c_str()) != 0)
      fail_file(ExitCode::data, "cannot write", target, errno);
    renamed_ = true;
  }

 private:
  std::string path_;
  Descriptor file_{-1};
  bool renamed_ = false;
};

}  // namespace

FileSummary write_file_atomic(const std::string& path, const std::function<void(FileWriter&)>& fill,
                              uint64_t expected) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  int number = exists || errno == ENOENT ? 0 : errno;
  if (path.empty()) number = ENOENT;
  if (path.ends_with('/') || (exists && S_ISDIR(status.st_mode))) number = EISDIR;
  if (exists && ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) number = errno;
  if (number != 0) fail_file(ExitCode::data, "cannot write", path, number);
  if (names_a_stream(path) || (exists && !S_ISREG(status.st_mode)))
    return write_directly(path, fill, expected);

  std::error_code error;
  fs::path target = exists ? fs::canonical(path, error) : fs::path(path);
  if (error) fail_file(ExitCode::data, "cannot write", path, error.value());
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  Temporary temporary(folder, path);
  if (exists) ::fchmod(temporary.descriptor(), status.st_mode & 07777);  // a courtesy: may be refused
  FileWriter writer(temporary.descriptor(), path, expected);
  fill(writer);
  writer.flush();
  temporary.sync_and_rename(target.string());
  sync_folder(folder.string());
  return writer.summary();
}

FileSummary write_file_atomic(const std::string& path, std::string_view bytes) {
  return write_file_atomic(
      path, [&](FileWriter& writer) { writer.write(bytes); }, bytes.size());
}

void sync_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number < 0) {
    if (errno == EACCES) return;  // a folder that may be written but not listed cannot be synced
    fail_file(ExitCode::data, "cannot write", path, errno);
  }
  // Some network file systems have no fsync of a folder; they order renames themselves.
  if (::fsync(folder.number) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail_file(ExitCode::data, "cannot write", path, errno);
}

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path, error) && !error) error.assign(ENOTDIR, std::generic_category());
  if (path.empty()) error.assign(ENOENT, std::generic_category());
  if (error) fail_file(ExitCode::data, "cannot make the folder", path, error.value());
}

void remove_temporaries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(".tmp-")) found.push_back(it->path());
  if (error) fail_file(ExitCode::data, "cannot list the folder", folder, error.value());
  for (const fs::path& path : found) {
    fs::remove_all(path, error);
    if (error) fail_file(ExitCode::data, "cannot remove", path.string(), error.value());
  }
}

namespace {

// Folders that glob could not list. It asks a plain function, so the answer is kept per thread.
struct Unreadable {
  std::string path;
  int number = 0;
};
thread_local Unreadable unreadable;

int on_unreadable(const char* path, int number) {
  if (number == ENOENT || number == ENOTDIR) return 0;  // simply no match below
  unreadable = {path, number};
  return 1;
}

std::vector<std::string> expand_pattern(const std::string& pattern) {
  std::error_code ignored;
  if (fs::exists(pattern, ignored)) return {pattern};  // also a name that holds *, ? or [ itself
  unreadable = {};
  glob_t matches{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_TILDE, on_unreadable, &matches);
  std::vector<std::string> files(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  if (result == GLOB_ABORTED)
    fail_file(ExitCode::data, fmt::format("cannot expand {}: cannot list the folder", pattern),
              unreadable.path, unreadable.number);
  if (files.empty())
    fail(ExitCode::data, "{}: no file matches; check the spelling (relative paths start at {})",
         pattern.empty() ? "\"\" (an empty path)" : pattern, fs::current_path(ignored).string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns)
    for (std::string& file : expand_pattern(pattern)) {
      if (!seen.insert(fs::path(file).lexically_normal().string()).second)
        fail(ExitCode::data, "{}: matches {}, which an earlier pattern has matched; name each file once",
             pattern, file);
      files.push_back(std::move(file));
    }
  return files;
}

}  // namespace kata
