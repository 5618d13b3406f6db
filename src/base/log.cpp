#include "base/log.h"

#include <iterator>
#include <memory>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/error.h"

namespace kata {

namespace {

constexpr struct {
  const char* name;
  spdlog::level::level_enum level;
} levels[] = {{"trace", spdlog::level::trace}, {"debug", spdlog::level::debug}, {"info", spdlog::level::info},
              {"warn", spdlog::level::warn},   {"error", spdlog::level::err},   {"off", spdlog::level::off}};

// Prints the level under the name that --log-level takes ("warn"; the library says "warning").
class LevelName : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    for (const auto& [name, level] : levels)
      if (level == message.level) fmt::format_to(std::back_inserter(out), "{}", name);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<LevelName>(); }
};

std::unique_ptr<spdlog::logger> make_logger() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('N').set_pattern("[%N] %v");
  auto made = std::make_unique<spdlog::logger>("kata", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  made->set_formatter(std::move(formatter));
  made->set_level(spdlog::level::info);
  made->flush_on(spdlog::level::trace);
  return made;
}

}  // namespace

spdlog::logger& logger() {
  static const std::unique_ptr<spdlog::logger> instance = make_logger();
  return *instance;
}

void set_log_level(const std::string& name) {
  for (const auto& [known, level] : levels)
    if (name == known) return logger().set_level(level);
  fail(ExitCode::usage, "log level \"{}\": expected trace, debug, info, warn, error or off", name);
}

}  // namespace kata
