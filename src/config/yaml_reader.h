// YAML text as a tree of values that remember where they were written.
//
// The subset is small on purpose: one document, maps with plain keys, lists, scalars, aliases. Tags, merge
// keys
// (`<<`), duplicate keys and a second document are errors, since each could change a run without being seen.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace kata {

// Where a value comes from: a place in a file, or the text of a --set option.
struct Origin {
  std::shared_ptr<const std::string> source;  // path, or "--set a.b=c"
  int line = 0;                               // from 1; 0 = the whole source
  int column = 0;                             // from 1

  std::string text() const;  // "configs/x.yaml:3:5", "--set a.b=c"
};

struct YamlEntry;

struct YamlNode {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  bool quoted = false;  // a scalar in quotes is text, whatever it looks like
  std::string scalar;
  std::vector<YamlNode> items;     // of a list
  std::vector<YamlEntry> entries;  // of a map, in file order, keys distinct
  Origin origin;

  const YamlEntry* find(const std::string& key) const;
  YamlEntry* find(const std::string& key);
  void erase(const std::string& key);
  std::string description() const;  // "the list of 3 items", "'abc'", "nothing"
};

struct YamlEntry {
  std::string key;
  Origin origin;  // of the key
  YamlNode value;
};

// The tree of one file. ExitCode::usage with file:line:column for what cannot be read or is not YAML.
YamlNode read_yaml_file(const std::string& path);

// Reads `path` and what its `extends:` key names (relative to the folder of the file that says so), the
// extended file first. The key itself is gone from the result. A cycle is an error.
YamlNode read_yaml_chain(const std::string& path);

// Lays `over` on `base`: maps are merged key by key, everything else is replaced.
void merge_yaml(YamlNode& base, const YamlNode& over);

// Applies "a.b.2.c=value", the value in YAML. ExitCode::usage with the text of the option.
void apply_override(YamlNode& root, const std::string& assignment);

}  // namespace kata
