// Errors that a user can act on, and checks on ourselves.
//
// An Error is one line: what is wrong, where, what was expected, what to do. main() prints it and
// exits with its code (DESIGN: exit codes). A failed KATA_CHECK is our own fault and prints the expression.
#pragma once

#ifndef __CUDACC__
#include <spdlog/fmt/fmt.h>
#endif
#include <stdexcept>
#include <string>
#include <utility>

namespace kata {

enum class ExitCode : int {
  ok = 0,
  usage = 2,          // bad arguments or config
  data = 3,           // bad data or checkpoint
  numeric = 4,        // non-finite loss past the allowed skips
  device = 5,         // device, memory or communication failure
  interrupted = 130,  // SIGINT or SIGTERM, after saving
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& detail);

// A kernel that could not be launched: ExitCode::device with CUDA's name and description of the error.
[[noreturn]] void launch_failed(const char* kernel, const char* name, const char* description);

#ifndef __CUDACC__
// fail(ExitCode::data, "{}: expected {} bytes, found {}", path, want, have);
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}
#endif

}  // namespace kata

// For faults of this program, not of its user: KATA_CHECK(rows > 0, "rows = {}", rows). nvcc cannot compile
// every version of fmt: inside a .cu the message is the expression alone.
#ifdef __CUDACC__
#define KATA_CHECK(expression, ...)                                               \
  do {                                                                            \
    if (!(expression)) ::kata::check_failed(#expression, __FILE__, __LINE__, ""); \
  } while (false)
#else
#define KATA_CHECK(expression, ...)                                                                     \
  do {                                                                                                  \
    if (!(expression)) ::kata::check_failed(#expression, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (false)
#endif
