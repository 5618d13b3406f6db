#include "base/error.h"

namespace kata {

void check_failed(const char* expression, const char* file, int line, const std::string& detail) {
  throw std::logic_error(fmt::format("internal error: {} is false: {} ({}:{}); please report this",
                                     expression, detail, file, line));
}

void launch_failed(const char* kernel, const char* name, const char* description) {
  fail(ExitCode::device, "{}: the GPU refused the launch: {} ({})", kernel, name, description);
}

}  // namespace kata
