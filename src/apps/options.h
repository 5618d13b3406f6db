// The options that all programs share, and the frame that parses them.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"
#include "base/version.h"

namespace kata {

struct SharedOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string device = "auto";
  std::string log_level = "info";
};

inline void add_log_options(CLI::App& app, SharedOptions& options) {
  app.set_version_flag("--version", version_text());
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
}

inline void add_device_option(CLI::App& app, SharedOptions& options) {
  app.add_option("--device", options.device, "auto, cpu or cuda[:N]")->capture_default_str();
}

inline CLI::Option* add_config_options(CLI::App& app, SharedOptions& options) {
  app.add_option("--set", options.overrides, "override one key: --set train.steps=100 (repeatable)")
      ->allow_extra_args(false);
  return app.add_option("--config", options.config, "YAML file of the run");
}

// As CLI::Range and CLI::PositiveNumber, but a NaN does not pass.
inline CLI::Validator number(const std::string& what, const std::function<bool(double)>& accepted) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && accepted(value);
        return good ? std::string() : fmt::format("{} is not {}", text, what);
      },
      "");
}
inline CLI::Validator within(double low, double high) {
  return number(fmt::format("a number from {} to {}", low, high),
                [=](double x) { return x >= low && x <= high; });
}
inline CLI::Validator minutes() {
  return number("a number of minutes above 0", [](double x) { return x > 0 && std::isfinite(x); });
}

// False when --help or --version was answered. Bad arguments are ExitCode::usage.
inline bool parse(CLI::App& app, int argc, char** argv, const SharedOptions& options) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& answer) {
    app.exit(answer);
    return false;
  } catch (const CLI::ParseError& error) {
    fail(ExitCode::usage, "{}; see {} --help", error.what(), app.get_name());
  }
  set_log_level(options.log_level);
  refuse_mpi();
  return true;
}

// This build computes on the CPU only.
inline void check_device(const SharedOptions& options) {
  if (options.device == "auto" || options.device == "cpu") return;
  if (options.device.rfind("cuda", 0) == 0)
    fail(ExitCode::device, "--device {}: this build has no CUDA support; use --device cpu", options.device);
  fail(ExitCode::usage, "--device {}: expected auto, cpu or cuda[:N]", options.device);
}

}  // namespace kata
