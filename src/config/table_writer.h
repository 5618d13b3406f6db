// What is written from a table: the YAML dump, the comparison and the reference of keys.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "config/yaml_reader.h"

namespace kata {

// A value as YAML writes it: doubles in the shortest form that reads back to the same bits, text in quotes
// where it would read as something else.
std::string yaml_text(double value);
std::string yaml_text(const std::string& value);

std::string flow_yaml(const YamlNode& tree);  // on one line: "{a: 1, b: [2, 3]}"

// Turns a struct into the tree that the reader would read it from; scalars hold their YAML text.
class TableToTree {
 public:
  static constexpr bool reading = false;

  // one_for_same: a one_or_list whose items are all the same is written as a single map.
  template <class T>
  static YamlNode tree(T value, bool one_for_same) {  // a copy: a table visits mutable fields
    TableToTree visitor(one_for_same);
    value.visit(visitor);
    return std::move(visitor.node_);
  }

  void field(const char* key, int64_t& value, const Range<int64_t>& range, const char*) {
    if (!is_absent(value, range)) add(key, scalar(std::to_string(value)));
  }
  void field(const char* key, uint64_t& value, const Range<uint64_t>&, const char*) {
    add(key, scalar(std::to_string(value)));
  }
  template <class T>
  void field(const char* key, T& value, const Range<double>&, const char*) {
    if constexpr (std::is_same_v<T, double>)
      add(key, scalar(yaml_text(value)));
    else
      add(key, scalars(value));
  }
  void field(const char* key, bool& value, const char*) { add(key, scalar(value ? "true" : "false")); }
  void field(const char* key, std::string& value, const Words& words, const char*) {
    if (!words.may_be_empty || !value.empty()) add(key, scalar(yaml_text(value)));
  }
  void field(const char* key, std::vector<std::string>& value, const Words&, const char*) {
    add(key, scalars(value));
  }
  void switched(const char* key, const char* inner, std::optional<double>& value, const Range<double>&,
                const char*) {
    if (!value) return add(key, scalar("none"));
    YamlNode map;
    map.kind = YamlNode::Kind::map;
    map.entries.push_back({inner, {}, scalar(yaml_text(*value))});
    add(key, std::move(map));
  }
  template <class T, class Rule>
  void required(const char* key, T& value, const Rule& rule, const char* help) {
    field(key, value, rule, help);
  }
  template <class T>
  void section(const char* key, T& value, const char*) {
    add(key, tree(value, one_for_same_));
  }
  template <class T>
  void optional_section(const char* key, std::optional<T>& value, const char*) {
    if (value) add(key, tree(*value, one_for_same_));
  }
  template <class T>
  void list(const char* key, std::vector<T>& values, const char*) {
    add(key, items(values));
  }
  template <class T>
  void one_or_list(const char* key, std::vector<T>& values, const char*) {
    YamlNode all = items(values);
    bool same = one_for_same_ && !all.items.empty();
    for (const YamlNode& item : all.items) same = same && flow_yaml(item) == flow_yaml(all.items[0]);
    add(key, same ? YamlNode(all.items[0]) : std::move(all));
  }

 private:
  explicit TableToTree(bool one_for_same) : one_for_same_(one_for_same) { node_.kind = YamlNode::Kind::map; }

  static YamlNode scalar(std::string text) {
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.scalar = std::move(text);
    return node;
  }
  template <class Container>
  static YamlNode scalars(const Container& values) {
    YamlNode node;
    node.kind = YamlNode::Kind::list;
    for (const auto& value : values) node.items.push_back(scalar(yaml_text(value)));
    return node;
  }
  template <class T>
  YamlNode items(const std::vector<T>& values) const {
    YamlNode node;
    node.kind = YamlNode::Kind::list;
    for (const T& value : values) node.items.push_back(tree(value, one_for_same_));
    return node;
  }
  void add(const char* key, YamlNode node) { node_.entries.push_back({key, {}, std::move(node)}); }

  bool one_for_same_;
  YamlNode node_;
};

std::string block_yaml(const YamlNode& tree);  // sections in blocks, small maps on one line

// ("model.mixer.0.conv", "4"), in the order of the table.
std::vector<std::pair<std::string, std::string>> flatten(const YamlNode& tree);

// The rows of configs/README.md: key, default, values, meaning.
struct KeyRow {
  std::string key, fallback, values, help;
};

class TableToRows {
 public:
  static constexpr bool reading = false;

  // Rows of T's table, defaults from `value`.
  template <class T>
  static std::vector<KeyRow> rows(T value, std::string prefix = "") {
    TableToRows visitor(std::move(prefix));
    value.visit(visitor);
    return std::move(visitor.rows_);
  }

  template <class T, class Rule>
  void field(const char* key, T& value, const Rule& rule, const char* help) {
    add(key, text_of(value), values_of(value, rule), help);
  }
  void field(const char* key, int64_t& value, const Range<int64_t>& range, const char* help) {
    add(key, is_absent(value, range) ? "none" : text_of(value), values_of(value, range), help);
  }
  void field(const char* key, bool& value, const char* help) {
    add(key, value ? "true" : "false", "true, false", help);
  }
  template <class T, class Rule>
  void required(const char* key, T& value, const Rule& rule, const char* help) {
    add(key, "required", values_of(value, rule), help);
  }
  void switched(const char* key, const char* inner, std::optional<double>& value, const Range<double>& range,
                const char* help) {
    add(key, value ? fmt::format("{{{}: {}}}", inner, yaml_text(*value)) : "none",
        fmt::format("none, or {{{}: {}}}", inner, range.text()), help);
  }
  template <class T>
  void section(const char* key, T& value, const char*) {
    append(rows(value, prefix_ + key + "."));
  }
  template <class T>
  void optional_section(const char* key, std::optional<T>& value, const char* help) {
    add(key, "none", "a map", help);
    append(rows(value.value_or(T()), prefix_ + key + "."));
  }
  template <class T>
  void list(const char* key, std::vector<T>&, const char* help) {
    add(key, "required", "a list of maps", help);
    append(rows(T(), prefix_ + key + "[]."));
  }
  // Defaults that depend on which kind of T it is are "by preset".
  template <class T>
  void one_or_list(const char* key, std::vector<T>&, const char* help) {
    add(key, "required", "a map, or a list of maps", help);
    std::vector<KeyRow> merged = rows(T(), prefix_ + key + ".");
    bool first = true;
    for (const T& example : T::examples()) {
      const std::vector<KeyRow> other = rows(example, prefix_ + key + ".");
      for (size_t i = 0; i < merged.size(); ++i) {
        if (first)
          merged[i].fallback = other[i].fallback;
        else if (merged[i].fallback != other[i].fallback)
          merged[i].fallback = "by preset";
      }
      first = false;
    }
    append(std::move(merged));
  }

 private:
  explicit TableToRows(std::string prefix) : prefix_(std::move(prefix)) {}

  static std::string text_of(int64_t value) { return std::to_string(value); }
  static std::string text_of(uint64_t value) { return std::to_string(value); }
  static std::string text_of(double value) { return yaml_text(value); }
  static std::string text_of(const std::string& value) { return value.empty() ? "none" : value; }
  template <class Container>
  static std::string text_of(const Container& values) {
    std::vector<std::string> words;
    for (const auto& value : values) words.push_back(text_of(value));
    return fmt::format("[{}]", joined(words));
  }
  template <class T, class R>
  static std::string values_of(const T&, const Range<R>& range) {
    return (std::is_arithmetic_v<T> ? "" : "a list, each ") + range.text();
  }
  template <class T>
  static std::string values_of(const T&, const Words& words) {
    const std::string one = words.names.empty() ? "text" : joined(words.names);
    return std::is_same_v<T, std::string> ? one : "a list of " + one;
  }
  void add(const char* key, std::string fallback, std::string values, const char* help) {
    rows_.push_back({prefix_ + key, std::move(fallback), std::move(values), help});
  }
  void append(std::vector<KeyRow> rows) { rows_.insert(rows_.end(), rows.begin(), rows.end()); }

  std::string prefix_;
  std::vector<KeyRow> rows_;
};

std::string markdown(const std::vector<KeyRow>& rows);  // a table, one line per key

}  // namespace kata
