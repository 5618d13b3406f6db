#include "config/table_writer.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace kata {
namespace {

constexpr const char* plain_characters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789./+-*";

// Text that reads back as the same text without quotes: it starts with a letter or "_" or "/".
bool plain(const std::string& text) {
  if (text.empty() || text == "true" || text == "false" || text == "null") return false;
  double number = 0;  // "Inf" and "nan" are numbers to the reader
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number).ptr == end) return false;
  const char first = text[0];
  const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  return (letter || first == '_' || first == '/') &&
         text.find_first_not_of(plain_characters) == std::string::npos;
}

bool holds_maps(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::list)
    return std::any_of(node.items.begin(), node.items.end(),
                       [](const YamlNode& item) { return item.kind == YamlNode::Kind::map; });
  return std::any_of(node.entries.begin(), node.entries.end(),
                     [](const YamlEntry& entry) { return holds_maps(entry.value); });
}

void append(std::string& list, const std::string& item) {
  if (!list.empty()) list += ", ";
  list += item;
}

void print(const YamlNode& map, const std::string& indent, std::string& out) {
  for (const YamlEntry& entry : map.entries) {
    const YamlNode& value = entry.value;
    out += indent + entry.key + ":";
    const bool section = value.kind == YamlNode::Kind::map && (indent.empty() || holds_maps(value));
    if (section && !value.entries.empty()) {
      out += "\n";
      print(value, indent + "  ", out);
    } else if (value.kind == YamlNode::Kind::list && holds_maps(value)) {
      out += "\n";
      for (const YamlNode& item : value.items) out += fmt::format("{}  - {}\n", indent, flow_yaml(item));
    } else {
      out += fmt::format(" {}\n", flow_yaml(value));
    }
  }
}

void flatten(const YamlNode& node, const std::string& key,
             std::vector<std::pair<std::string, std::string>>& out) {
  const std::string prefix = key.empty() ? "" : key + ".";
  for (const YamlEntry& entry : node.entries) flatten(entry.value, prefix + entry.key, out);
  if (node.kind == YamlNode::Kind::list && holds_maps(node)) {
    for (size_t i = 0; i < node.items.size(); ++i) flatten(node.items[i], prefix + std::to_string(i), out);
  } else if (node.kind != YamlNode::Kind::map) {
    out.emplace_back(key, flow_yaml(node));
  }
}

}  // namespace

std::string yaml_text(double value) {
  return fmt::format("{}", value);
}

std::string yaml_text(const std::string& value) {
  if (plain(value)) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string flow_yaml(const YamlNode& tree) {
  std::string out;
  switch (tree.kind) {
    case YamlNode::Kind::null:
      return "null";
    case YamlNode::Kind::scalar:
      return tree.scalar;
    case YamlNode::Kind::list:
      for (const YamlNode& item : tree.items) append(out, flow_yaml(item));
      return fmt::format("[{}]", out);
    case YamlNode::Kind::map:
      for (const YamlEntry& entry : tree.entries) append(out, entry.key + ": " + flow_yaml(entry.value));
      return fmt::format("{{{}}}", out);
  }
  return out;
}

std::string block_yaml(const YamlNode& tree) {
  std::string out;
  print(tree, "", out);
  return out;
}

std::vector<std::pair<std::string, std::string>> flatten(const YamlNode& tree) {
  std::vector<std::pair<std::string, std::string>> out;
  flatten(tree, "", out);
  return out;
}

std::string markdown(const std::vector<KeyRow>& rows) {
  std::string out = "| key | default | values | meaning |\n|---|---|---|---|\n";
  for (const KeyRow& row : rows)
    out += fmt::format("| `{}` | {} | {} | {} |\n", row.key, row.fallback, row.values, row.help);
  return out;
}

}  // namespace kata
