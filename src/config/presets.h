// The mixers: points of the grid map x update x decay x read (DESIGN: one recurrence, four choices), by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kata {

struct Preset {
  const char* name;
  const char* map;  // feature map; empty for softmax, the only mixer outside the grid
  int64_t groups;   // of psd and psd_sum
  const char* update;
  const char* decay;
  const char* read;
  const char* summary;
};

const std::vector<Preset>& presets();
const Preset* find_preset(const std::string& name);  // null where there is none

// Names that a config may use, for each choice of the grid.
std::vector<std::string> preset_names();
std::vector<std::string> map_names();
std::vector<std::string> update_names();
std::vector<std::string> decay_names();
std::vector<std::string> read_names();
bool has_groups(const std::string& map);  // psd and psd_sum

// Width n of the feature vector of a head (MATH: feature maps); groups divide head_dim.
int64_t feature_width(const std::string& map, int64_t groups, int64_t head_dim);

}  // namespace kata
