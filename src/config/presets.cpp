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
      {"hermitian_kata", "hermitian", 1, "add", "none", "normalised", "cone of complex PSD matrices"},
      {"quaternionic_kata", "quaternionic", 1, "add", "none", "normalised",
       "cone of quaternionic PSD matrices"},
      {"gatedkata_m1", "psd", 1, "add", "scalar", "normalised", "kata_m1 with a decay"},
      {"gatedkata_m2", "psd", 2, "add", "scalar", "normalised", "kata_m2 with a decay"},
      {"deltakata_m1", "psd", 1, "delta", "none", "raw", "delta rule on PSD features, one group"},
      {"deltakata_m2", "psd", 2, "delta", "none", "raw", "delta rule on PSD features, 2 groups"},
      {"gateddeltakata_m1", "psd", 1, "delta", "scalar", "raw", "deltakata_m1 with a decay"},
      {"gateddeltakata_m2", "psd", 2, "delta", "scalar", "raw", "deltakata_m2 with a decay"},
      {"deltanet", "identity", 1, "delta", "none", "raw", "the DeltaNet layer"},
      {"gated_deltanet", "identity", 1, "delta", "scalar", "raw", "the Gated DeltaNet layer"},
      {"mamba2", "identity", 1, "add", "scalar", "raw", "the Mamba-2 layer: heads share keys and queries"},
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
  return {"identity", "orthant", "lorentz", "psd", "psd_sum", "hermitian", "quaternionic"};
}

std::vector<std::string> update_names() {
  return {"add", "delta"};
}

std::vector<std::string> decay_names() {
  return {"none", "scalar"};
}

std::vector<std::string> read_names() {
  return {"normalised", "raw", "softmax"};
}

bool has_groups(const std::string& map) {
  return map == "psd" || map == "psd_sum";
}

int64_t feature_width(const std::string& map, int64_t groups, int64_t head_dim) {
  if (map == "hermitian") return head_dim / 2 * (head_dim / 2);
  if (map == "quaternionic") return head_dim / 4 * (head_dim / 2 - 1);
  if (!has_groups(map)) return head_dim;
  const int64_t group = head_dim / groups;
  const int64_t packed = group * (group + 1) / 2;
  return map == "psd" ? groups * packed : packed;
}

}  // namespace kata
