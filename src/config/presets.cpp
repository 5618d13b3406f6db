#include "config/presets.h"

#include <algorithm>

#include "base/error.h"

namespace kata {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> rows = {
      {"softmax", "", 1, "add", "none", "softmax", "causal softmax attention, the Llama layer"},
      {"linear_orthant", "orthant", 1, "add", "none", "normalised",
       "linear attention on the positive orthant"},
      {"linear_lorentz", "lorentz", 1, "add", "none", "normalised", "linear attention on the Lorentz cone"},
      {"kata_m1", "psd", 1, "add", "none", "normalised", "PSD cone, one group"},
      {"kata_m2", "psd", 2, "add", "none", "normalised", "PSD cone, 2 groups side by side"},
      {"kata_m4", "psd", 4, "add", "none", "normalised", "PSD cone, 4 groups side by side"},
      {"kata_s2", "psd_sum", 2, "add", "none", "normalised", "PSD cone, 2 groups summed"},
      {"kata_s4", "psd_sum", 4, "add", "none", "normalised", "PSD cone, 4 groups summed"},
  };
  return rows;
}

const Preset* find_preset(const std::string& name) {
  const auto at =
      std::find_if(presets().begin(), presets().end(), [&](const Preset& row) { return name == row.name; });
  return at == presets().end() ? nullptr : &*at;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& row : presets()) names.push_back(row.name);
  return names;
}

std::vector<std::string> map_names() {
  return {"identity", "orthant", "lorentz", "psd", "psd_sum"};
}

std::vector<std::string> update_names() {
  return {"add"};
}

std::vector<std::string> decay_names() {
  return {"none"};
}

std::vector<std::string> read_names() {
  return {"normalised", "raw", "softmax"};
}

bool is_psd(const std::string& map) {
  return map == "psd" || map == "psd_sum";
}

int64_t feature_width(const std::string& map, int64_t groups, int64_t head_dim) {
  if (!is_psd(map)) return head_dim;
  const int64_t group = head_dim / groups;
  const int64_t packed = group * (group + 1) / 2;
  return map == "psd" ? groups * packed : packed;
}

int64_t state_entries(const std::string& map, int64_t groups, const std::string& read, int64_t head_dim,
                      int64_t value_dim) {
  if (read == "softmax") return 0;
  return feature_width(map, groups, head_dim) * (value_dim + (read == "normalised" ? 1 : 0));
}

std::string list_mixers() {
  constexpr int64_t head_dim = 64;
  const auto line = [](const std::string& name, const std::string& map, const std::string& groups,
                       const std::string& update, const std::string& decay, const std::string& read,
                       const std::string& state, const std::string& summary) {
    return fmt::format("{:<15} {:<8} {:>6}  {:<6} {:<6} {:<11} {:>9}  {}\n", name, map, groups, update, decay,
                       read, state, summary);
  };
  std::string out = line("preset", "map", "groups", "update", "decay", "read", "state", "mixer");
  for (const Preset& row : presets()) {
    const bool softmax = row.map[0] == '\0';
    const int64_t entries = state_entries(row.map, row.groups, row.read, head_dim, head_dim);
    out += line(row.name, softmax ? "-" : row.map, is_psd(row.map) ? std::to_string(row.groups) : "-",
                softmax ? "-" : row.update, softmax ? "-" : row.decay, row.read,
                softmax ? fmt::format("{} T", 2 * head_dim) : std::to_string(entries), row.summary);
  }
  return out + fmt::format(
                   "state: numbers that one head of width {} carries from token to token, the mass "
                   "included; softmax keeps T tokens\n",
                   head_dim);
}

}  // namespace kata
