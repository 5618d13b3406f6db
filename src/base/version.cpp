#include "base/version.h"

#include <nlohmann/json.hpp>
#include <spdlog/version.h>

#include "base/error.h"
#include "commit.h"

namespace kata {

std::string commit() {
  return KATA_COMMIT;
}

static const char* on_or_off(bool on) {
  return on ? "ON" : "OFF";
}

std::string version_text() {
  return fmt::format(
      "kata {} ({})\nbuild: {}, native {}, cuda {}, icu {}, mpi OFF, compiler {}\n"
      "libraries: spdlog {}.{}.{}, nlohmann/json {}.{}.{}",
      KATA_VERSION, commit(), KATA_BUILD_TYPE, on_or_off(KATA_NATIVE_BUILD), on_or_off(KATA_CUDA),
      on_or_off(KATA_ICU), __VERSION__, SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH,
      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace kata
