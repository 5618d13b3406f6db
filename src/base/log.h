// Messages to standard error, one line each: "[warn] text". Results go to standard output, never here.
#pragma once

#include <spdlog/logger.h>
#include <string>

namespace kata {

// logger().warn("{}: ...", path). Level info until set_log_level; safe from any thread.
spdlog::logger& logger();

// trace, debug, info, warn, error or off; anything else is ExitCode::usage.
void set_log_level(const std::string& name);

}  // namespace kata
