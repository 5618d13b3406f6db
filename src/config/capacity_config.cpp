#include "config/capacity_config.h"

#include <cmath>
#include <set>

#include "config/quick_layer.h"
#include "config/table_reader.h"
#include "config/table_writer.h"

namespace kata {
namespace {

void check_widths(const std::vector<double>& widths, const Origins& origins) {
  if (widths.empty()) origins.reject("widths", "empty; give at least one width");
  std::set<double> seen;
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string key = fmt::format("widths.{}", i);
    if (widths[i] != std::floor(widths[i]))
      origins.reject(key, "{} is not whole; a width is a number of coordinates", widths[i]);
    if (!seen.insert(widths[i]).second) origins.reject(key, "{} is given twice", widths[i]);
  }
}

void check_maps(const CapacityConfig& config, const Origins& origins) {
  if (config.maps.empty())
    origins.reject("maps", "empty; give a list such as [{{map: psd}}, {{map: lorentz}}]");
  std::set<std::pair<std::string, int64_t>> seen;
  for (size_t i = 0; i < config.maps.size(); ++i) {
    const CapacityMap& map = config.maps[i];
    const std::string key = fmt::format("maps.{}", i);
    if (map.groups > 1 && !has_groups(map.map))
      origins.reject(key + ".groups", "{} groups of {}; only psd and psd_sum have groups", map.groups,
                     map.map);
    if (!seen.insert({map.map, map.groups}).second)
      origins.reject(key, "{} with {} groups is given twice", map.map, map.groups);
    const int64_t unit = map.groups * coordinate_size(map.map);
    for (const double width : config.widths)
      if (static_cast<int64_t>(width) % unit != 0)
        origins.reject(key, "{} needs widths that {} divides, but widths has {}", map.map, unit, width);
  }
}

CapacityConfig read_capacity(const YamlNode& root, const std::string& path) {
  ReadLog log{{}, Origins(path)};
  CapacityConfig config;
  TableReader::read_table(root, config, log);
  log.report();
  if (config.suite != capacity_suite)
    log.origins.reject("suite", "'{}' is not measured by these keys; expected {}", config.suite,
                       capacity_suite);
  check_widths(config.widths, log.origins);
  check_maps(config, log.origins);
  if (config.packing.eps.empty()) log.origins.reject("packing.eps", "empty; give at least one score");
  std::set<double> seen;
  for (const double eps : config.packing.eps)
    if (!seen.insert(eps).second) log.origins.reject("packing.eps", "{} is given twice", eps);
  return config;
}

}  // namespace

int64_t coordinate_size(const std::string& map) {
  if (map == "hermitian") return 2;
  return map == "quaternionic" ? 4 : 1;
}

std::string suite_of_file(const std::string& path) {
  const YamlNode root = read_yaml_chain(path);
  const YamlEntry* entry = root.find("suite");
  return entry && entry->value.kind == YamlNode::Kind::scalar ? entry->value.scalar : "";
}

CapacityConfig load_capacity_config(const std::string& path, bool quick,
                                    const std::vector<std::string>& overrides) {
  return load_with_quick(path, quick, overrides, read_capacity);
}

std::string dump(const CapacityConfig& config) {
  return block_yaml(TableToTree::tree(config, true));
}

std::string capacity_reference() {
  return markdown(TableToRows::rows(CapacityConfig()));
}

}  // namespace kata
