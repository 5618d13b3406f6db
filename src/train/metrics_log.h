// metrics.jsonl: one JSON object a line, each with an integer "step".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace kata {

class MetricsLog {
 public:
  // Opens the file for appending, made if missing. Lines of steps above resume_step, which a resumed run
  // writes again, and a last line that a crash tore are cut off first (atomically); any other line that is no
  // object with a step is ExitCode::data with its number. A new run gives -1: then no line stays.
  MetricsLog(const std::string& path, int64_t resume_step);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Appends one line whole: after a failure (a full disk is ExitCode::data) the file ends where it did
  // before. Infinities and NaN become null.
  void write(const nlohmann::ordered_json& line);

  // Makes the lines so far survive a power failure; call before a checkpoint of the same step is saved.
  void sync();

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace kata
