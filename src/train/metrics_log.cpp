#include "train/metrics_log.h"

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace kata {

namespace {

std::optional<int64_t> step_of(const std::string& line) {
  if (line.find('\0') != std::string::npos) return std::nullopt;  // the parser takes it for the end
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_integer())
    return std::nullopt;
  return parsed["step"].get<int64_t>();
}

// The lines of steps up to resume_step. Only the last line may be torn: it then lacks its line end.
std::string kept_lines(const std::string& path, const std::string& text, int64_t resume_step) {
  std::string kept;
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const auto step = step_of(line);
    if (!step && end < text.size())
      fail(ExitCode::data,
           "{}:{}: expected a JSON object with an integer \"step\"; repair or remove the line, or move the "
           "file away",
           path, number);
    if (step && *step <= resume_step) kept += line + "\n";
    begin = end + 1;
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, int64_t resume_step) : path_(path) {
  if (path_exists(path)) {
    const std::string text = read_file(path);
    const std::string kept = kept_lines(path, text, resume_step);
    if (kept != text) write_file_atomic(path, kept);
  }
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_file(ExitCode::data, "cannot write", path, errno);
}

MetricsLog::~MetricsLog() {
  ::close(descriptor_);
}

void MetricsLog::write(const nlohmann::ordered_json& line) {
  KATA_CHECK(line.is_object() && line.contains("step") && line["step"].is_number_integer(),
             "a metrics line without a step: {}", line.dump());
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  struct stat before {};
  if (::fstat(descriptor_, &before) != 0) fail_file(ExitCode::data, "cannot write", path_, errno);
  size_t done = 0;
  while (done < text.size()) {  // one call, but for a disk that fills up: the second one then says why
    const ssize_t n = ::write(descriptor_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  if (done == text.size()) return;
  const int number = errno;
  if (done > 0 && ::ftruncate(descriptor_, before.st_size) != 0)
    fail_file(ExitCode::data, "cannot cut off the torn last line of", path_, errno);
  fail_file(ExitCode::data, fmt::format("cannot write a line of {} bytes to", text.size()), path_, number);
}

void MetricsLog::sync() {
  if (::fsync(descriptor_) != 0) fail_file(ExitCode::data, "cannot write", path_, errno);
}

}  // namespace kata
