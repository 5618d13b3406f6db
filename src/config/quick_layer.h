// A suite file with its `quick:` map, which --quick lays over the rest.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "config/config_text.h"
#include "config/yaml_reader.h"

namespace kata {

// read(root, path) makes the config. ExitCode::usage where the file has no `quick:` map that is asked for, or
// something else under that key.
template <class Read>
auto load_with_quick(const std::string& path, bool quick, const std::vector<std::string>& overrides,
                     Read&& read) {
  YamlNode full = read_yaml_chain(path);
  const YamlEntry* entry = full.find("quick");
  if (!entry && quick) fail(ExitCode::usage, "{}: the suite has no quick: map; run it without --quick", path);
  const bool has_quick = entry != nullptr;
  const YamlNode changes = has_quick ? entry->value : YamlNode();
  if (has_quick && changes.kind != YamlNode::Kind::map)
    fail(ExitCode::usage, "{}: quick: expected a map of keys of this file, found {}", changes.origin.text(),
         changes.description());
  full.erase("quick");
  const auto layered = [&](bool with_changes) {
    YamlNode root = full;
    if (with_changes) merge_yaml(root, changes);
    for (const std::string& assignment : overrides) apply_override(root, assignment);
    return read(root, path);
  };
  // Both are read, so that a fault in the one that is not asked for does not wait for its day.
  auto config = layered(quick);
  if (has_quick) layered(!quick);
  return config;
}

}  // namespace kata
