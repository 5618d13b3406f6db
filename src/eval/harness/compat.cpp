#include "eval/harness/compat.h"

#include "base/error.h"

namespace kata::harness {

namespace {

const std::vector<Compat>& presets() {
  static const std::vector<Compat> all = {
      {"lm-eval-0.4.2", BosPolicy::off, Prefix::eos, -1, 0, false, 48},
      {"lm-eval-0.4.8", BosPolicy::off, Prefix::automatic, -1, 0, false, 48},
      {"lm-eval-0.4.9.1", BosPolicy::off, Prefix::automatic, -1, 0, true, 48},
      {"lm-eval-0.4.9.2", BosPolicy::automatic, Prefix::automatic, -1, 0, true, 48},
      {"lm-eval-0.4.12", BosPolicy::automatic, Prefix::automatic, -1, 0, true, 256},
      {"lm-eval-head", BosPolicy::automatic, Prefix::automatic, -1, 1, true, 256},
  };
  return all;
}

}  // namespace

std::vector<std::string> compat_names() {
  std::vector<std::string> names;
  for (const Compat& preset : presets()) names.push_back(preset.name);
  return names;
}

Compat compat_preset(const std::string& name) {
  for (const Compat& preset : presets())
    if (preset.name == name) return preset;
  fail(ExitCode::usage, "--compat {}: unknown; expected one of {}", name, fmt::join(compat_names(), ", "));
}

}  // namespace kata::harness
