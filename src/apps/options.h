// The options that all programs share, and the frame that parses them.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/context.h"
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

// The processor that --device names: checked, and opened. auto is the first GPU where one can be used.
class ChosenProcessor {
 public:
  // precision: of what is to be computed, "fp32", "bf16" (on a GPU) or "fp64" (on the CPU).
  explicit ChosenProcessor(const SharedOptions& options, const std::string& precision = "fp32") {
    const std::string& device = options.device;
    const int index = gpu_index(device);  // checks the word
    const bool automatic = device == "auto";
    const std::string problem = device == "cpu" ? "" : gpu_problem();
    if (precision == "fp64") {
      if (device.starts_with("cuda"))
        fail(ExitCode::usage,
             "train.precision fp64 is computed on the CPU; give --device cpu, or fp32 or bf16 with a GPU");
      return;
    }
    if (precision == "bf16" && device == "cpu")
      fail(ExitCode::usage,
           "train.precision bf16 needs a GPU; give --set train.precision=fp32 with --device cpu");
    if (automatic && precision == "bf16" && !problem.empty())
      fail(ExitCode::device,
           "train.precision bf16 needs a GPU: {}; or compute with --set train.precision=fp32", problem);
    if (device == "cpu" || (automatic && !problem.empty())) return;
    if (!problem.empty()) fail(ExitCode::device, "--device {}: {}", device, problem);
    gpu_ = std::make_unique<Gpu>(index);
    processor_ = {Device::cuda, gpu_.get()};
  }

  const Processor& get() const { return processor_; }

  // Of "cuda:N", 0 of anything else. ExitCode::usage for what is no device.
  static int gpu_index(const std::string& device) {
    if (device == "auto" || device == "cpu" || device == "cuda") return 0;
    int index = 0;
    if (!device.starts_with("cuda:") || !CLI::detail::lexical_cast(device.substr(5), index) || index < 0)
      fail(ExitCode::usage, "--device {}: expected auto, cpu or cuda[:N]", device);
    return index;
  }

 private:
  std::unique_ptr<Gpu> gpu_;
  Processor processor_;
};

// For programs that compute on the CPU alone.
inline void require_cpu(const SharedOptions& options, const char* program) {
  ChosenProcessor::gpu_index(options.device);
  if (options.device.starts_with("cuda"))
    fail(ExitCode::device, "--device {}: {} computes on the CPU only; give --device cpu", options.device,
         program);
}

}  // namespace kata
