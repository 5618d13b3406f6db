// Reads a config struct from YAML through its table. Every fault is collected, with its place; the first one
// in the file is reported.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "config/origins.h"
#include "config/schema.h"
#include "config/yaml_reader.h"

namespace kata {

struct ReadLog {
  struct Fault {
    Origin origin;
    std::string what;
  };
  std::vector<Fault> faults;
  Origins origins;

  // ExitCode::usage with the first fault and the number of others, if there is any.
  void report() const;
};

class TableReader {
 public:
  static constexpr bool reading = true;

  // `prefix`: dotted key of the section, empty at the root. The section's struct is visited, then finish().
  TableReader(const YamlNode& section, std::string prefix, ReadLog& log)
      : section_(section), prefix_(std::move(prefix)), log_(log) {}

  void field(const char* key, int64_t& value, const Range<int64_t>& range, const char* help);
  void field(const char* key, uint64_t& value, const Range<uint64_t>& range, const char* help);
  void field(const char* key, double& value, const Range<double>& range, const char* help);
  void field(const char* key, std::array<double, 2>& value, const Range<double>& range, const char* help);
  void field(const char* key, std::vector<double>& value, const Range<double>& range, const char* help);
  void field(const char* key, bool& value, const char* help);
  void field(const char* key, std::string& value, const Words& words, const char* help);
  void field(const char* key, std::vector<std::string>& value, const Words& words, const char* help);
  void switched(const char* key, const char* inner, std::optional<double>& value, const Range<double>& range,
                const char* help);

  template <class T, class Rule>
  void required(const char* key, T& value, const Rule& rule, const char* help) {
    if (!section_.find(key)) fault(section_.origin, dotted(key), fmt::format("is missing: {}", help));
    field(key, value, rule, help);
  }
  template <class T>
  void section(const char* key, T& value, const char* /*help*/) {
    if (const YamlNode* node = take(key)) read(*node, dotted(key), value);
  }
  template <class T>
  void optional_section(const char* key, std::optional<T>& value, const char* help) {
    if (section_.find(key))
      value.emplace(), section(key, *value, help);
    else
      take(key);
  }
  template <class T>
  void list(const char* key, std::vector<T>& values, const char* help) {
    const YamlNode* node = take(key);
    if (!node) return;
    if (node->kind != YamlNode::Kind::list)
      return expected(*node, dotted(key), fmt::format("a list ({})", help));
    read_items(*node, key, values);
  }
  template <class T>
  void one_or_list(const char* key, std::vector<T>& values, const char* help) {
    const YamlNode* node = take(key);
    if (!node) return;
    if (node->kind == YamlNode::Kind::map) {
      values.assign(1, T());
      read(*node, dotted(key), values[0]);
    } else if (node->kind == YamlNode::Kind::list) {
      read_items(*node, key, values);
    } else {
      expected(*node, dotted(key), fmt::format("a map or a list of maps ({})", help));
    }
  }

  void finish();  // keys of the section that the table does not have are faults

  template <class T>
  static void read_table(const YamlNode& root, T& value, ReadLog& log) {
    TableReader reader(root, "", log);
    value.visit(reader);
    reader.finish();
  }

 private:
  std::string dotted(const std::string& key) const { return prefix_.empty() ? key : prefix_ + "." + key; }
  const YamlNode* take(const char* key);  // notes the key as known; null where it is not given
  void fault(const Origin& origin, const std::string& key, const std::string& what);
  void expected(const YamlNode& node, const std::string& key, const std::string& what,
                const std::string& hint = "");
  template <class T>
  void number(const YamlNode& node, const std::string& key, T& value, const Range<T>& range);
  void word(const YamlNode& node, const std::string& key, std::string& value, const Words& words);

  template <class T>
  void read(const YamlNode& node, const std::string& key, T& value) {
    if (node.kind != YamlNode::Kind::map) return expected(node, key, "a map of keys");
    TableReader reader(node, key, log_);
    value.visit(reader);
    reader.finish();
  }
  template <class T>
  void read_items(const YamlNode& node, const char* key, std::vector<T>& values) {
    values.assign(node.items.size(), T());
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string item_key = dotted(key) + "." + std::to_string(i);
      log_.origins.add(item_key, node.items[i].origin.text());
      read(node.items[i], item_key, values[i]);
    }
  }

  const YamlNode& section_;
  std::string prefix_;
  ReadLog& log_;
  std::vector<std::string> names_;
};

}  // namespace kata
