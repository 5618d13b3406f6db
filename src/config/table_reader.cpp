#include "config/table_reader.h"

#include <algorithm>
#include <charconv>

#include "config/config_text.h"

namespace kata {
namespace {

enum class Parsed { good, not_a_number, too_large };

template <class T>
Parsed parse_number(const std::string& text, T& value) {
  const size_t first = text.rfind('-', 0) == 0 ? 1 : 0;
  const bool octal_looking = text.size() > first + 1 && text[first] == '0' &&
                             text.find_first_not_of("0123456789", first) == std::string::npos;
  if (octal_looking) return Parsed::not_a_number;  // YAML versions disagree on what 010 is
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range && stop == end) return Parsed::too_large;
  return error == std::errc() && stop == end ? Parsed::good : Parsed::not_a_number;
}

bool looks_like_number(const std::string& text) {
  double value = 0;
  return parse_number(text, value) != Parsed::not_a_number;
}

bool has_control_character(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

void ReadLog::report() const {
  if (faults.empty()) return;
  // The first in the file; faults of other sources keep the order in which they were found.
  const auto first = std::min_element(faults.begin(), faults.end(), [](const Fault& a, const Fault& b) {
    if (*a.origin.source != *b.origin.source) return false;
    return std::pair(a.origin.line, a.origin.column) < std::pair(b.origin.line, b.origin.column);
  });
  const size_t others = faults.size() - 1;
  fail(ExitCode::usage, "{}: {}{}", first->origin.text(), first->what,
       others == 0
           ? ""
           : fmt::format(" (and {} more {} in this config)", others, others == 1 ? "error" : "errors"));
}

const YamlNode* TableReader::take(const char* key) {
  names_.push_back(key);
  const YamlEntry* entry = section_.find(key);
  if (!entry) return nullptr;
  log_.origins.add(dotted(key), entry->value.origin.text());
  return &entry->value;
}

void TableReader::fault(const Origin& origin, const std::string& key, const std::string& what) {
  log_.faults.push_back({origin, key + ": " + what});
}

void TableReader::expected(const YamlNode& node, const std::string& key, const std::string& what,
                           const std::string& hint) {
  fault(node.origin, key, fmt::format("expected {}, found {}{}", what, node.description(), hint));
}

template <class T>
void TableReader::number(const YamlNode& node, const std::string& key, T& value, const Range<T>& range) {
  constexpr bool real = std::is_same_v<T, double>;
  const std::string wanted = fmt::format("{}, {}", real ? "a finite number" : "an integer", range.text());
  if (node.kind != YamlNode::Kind::scalar) return expected(node, key, wanted);
  if (node.quoted) return expected(node, key, wanted, "; remove the quotes");
  T parsed{};
  const Parsed result = parse_number(node.scalar, parsed);
  if (result == Parsed::not_a_number) {
    const bool fraction =
        !real && looks_like_number(node.scalar) && node.scalar.find_first_of(".eE") != std::string::npos;
    return expected(node, key, wanted, fraction ? "; write it in digits only" : "");
  }
  if (result == Parsed::too_large) return expected(node, key, wanted, "; that does not fit in 64 bits");
  if (!range.contains(parsed)) return expected(node, key, wanted);  // NaN and infinities are in no range
  value = parsed;
}

void TableReader::word(const YamlNode& node, const std::string& key, std::string& value, const Words& words) {
  const bool is_text = node.kind == YamlNode::Kind::scalar;
  if (!words.names.empty()) {
    const std::string wanted = "one of " + joined(words.names);
    if (!is_text) return expected(node, key, wanted);
    const bool known = std::find(words.names.begin(), words.names.end(), node.scalar) != words.names.end();
    if (known || (words.may_be_empty && node.quoted && node.scalar.empty())) {
      value = node.scalar;
      return;
    }
    const std::string near = nearest_name(node.scalar, words.names);
    return expected(node, key, wanted, near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }
  if (is_text && words.may_be_empty && node.quoted && node.scalar.empty()) {
    value.clear();
    return;
  }
  if (!is_text || node.scalar.empty() || has_control_character(node.scalar))
    return expected(node, key, "text");
  const bool other_type = looks_like_number(node.scalar) || node.scalar == "true" || node.scalar == "false";
  if (!node.quoted && other_type)
    return expected(node, key, "text", "; put it in quotes if it is meant as text");
  value = node.scalar;
}

void TableReader::field(const char* key, int64_t& value, const Range<int64_t>& range, const char*) {
  if (const YamlNode* node = take(key)) number(*node, dotted(key), value, range);
}

void TableReader::field(const char* key, uint64_t& value, const Range<uint64_t>& range, const char*) {
  if (const YamlNode* node = take(key)) number(*node, dotted(key), value, range);
}

void TableReader::field(const char* key, double& value, const Range<double>& range, const char*) {
  if (const YamlNode* node = take(key)) number(*node, dotted(key), value, range);
}

void TableReader::field(const char* key, std::array<double, 2>& value, const Range<double>& range,
                        const char*) {
  const YamlNode* node = take(key);
  if (!node) return;
  if (node->kind != YamlNode::Kind::list || node->items.size() != value.size())
    return expected(*node, dotted(key), fmt::format("a list of {} numbers", value.size()));
  for (size_t i = 0; i < value.size(); ++i)
    number(node->items[i], fmt::format("{}.{}", dotted(key), i), value[i], range);
}

void TableReader::field(const char* key, std::vector<double>& value, const Range<double>& range,
                        const char*) {
  const YamlNode* node = take(key);
  if (!node) return;
  if (node->kind != YamlNode::Kind::list) return expected(*node, dotted(key), "a list of numbers");
  value.assign(node->items.size(), 0);
  for (size_t i = 0; i < value.size(); ++i)
    number(node->items[i], fmt::format("{}.{}", dotted(key), i), value[i], range);
}

void TableReader::field(const char* key, bool& value, const char*) {
  const YamlNode* node = take(key);
  if (!node) return;
  const bool plain = node->kind == YamlNode::Kind::scalar && !node->quoted;
  if (!plain || (node->scalar != "true" && node->scalar != "false"))
    return expected(*node, dotted(key), "true or false");
  value = node->scalar == "true";
}

void TableReader::field(const char* key, std::string& value, const Words& words, const char*) {
  if (const YamlNode* node = take(key)) word(*node, dotted(key), value, words);
}

void TableReader::field(const char* key, std::vector<std::string>& value, const Words& words, const char*) {
  const YamlNode* node = take(key);
  if (!node) return;
  if (node->kind != YamlNode::Kind::list) return expected(*node, dotted(key), "a list of texts");
  value.assign(node->items.size(), "");
  for (size_t i = 0; i < value.size(); ++i)
    word(node->items[i], fmt::format("{}.{}", dotted(key), i), value[i], words);
}

void TableReader::switched(const char* key, const char* inner, std::optional<double>& value,
                           const Range<double>& range, const char*) {
  const YamlNode* node = take(key);
  if (!node) return;
  if (node->kind == YamlNode::Kind::scalar && node->scalar == "none") {
    value.reset();
    return;
  }
  const YamlEntry* entry = node->kind == YamlNode::Kind::map ? node->find(inner) : nullptr;
  if (!entry) return expected(*node, dotted(key), fmt::format("none or {{{}: a number}}", inner));
  double parsed = value.value_or(0);
  TableReader reader(*node, dotted(key), log_);
  reader.field(inner, parsed, range, "");
  reader.finish();
  value = parsed;
}

void TableReader::finish() {
  for (const YamlEntry& entry : section_.entries) {
    if (std::find(names_.begin(), names_.end(), entry.key) != names_.end()) continue;
    const std::string near = nearest_name(entry.key, names_);
    fault(entry.origin, dotted(shortened(entry.key)),
          near.empty() ? "unknown key; the keys here are " + joined(names_)
                       : fmt::format("unknown key; did you mean '{}'?", near));
  }
}

}  // namespace kata
