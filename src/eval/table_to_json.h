// A config struct as JSON, through its table: what results files carry beside the numbers.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.h"

namespace kata {

class TableToJson {
 public:
  static constexpr bool reading = false;

  template <class T>
  static nlohmann::ordered_json json(T value) {  // a copy: a table visits mutable fields
    TableToJson visitor;
    value.visit(visitor);
    return std::move(visitor.json_);
  }

  template <class T, class Rule>
  void field(const char* key, T& value, const Rule&, const char*) {
    json_[key] = value;
  }
  void field(const char* key, int64_t& value, const Range<int64_t>& range, const char*) {
    if (!is_absent(value, range)) json_[key] = value;
  }
  void field(const char* key, std::string& value, const Words& words, const char*) {
    if (!words.may_be_empty || !value.empty()) json_[key] = value;
  }
  void field(const char* key, bool& value, const char*) { json_[key] = value; }
  template <class T, class Rule>
  void required(const char* key, T& value, const Rule&, const char*) {
    json_[key] = value;
  }
  void switched(const char* key, const char* inner, std::optional<double>& value, const Range<double>&,
                const char*) {
    if (value)
      json_[key][inner] = *value;
    else
      json_[key] = "none";
  }
  template <class T>
  void section(const char* key, T& value, const char*) {
    json_[key] = json(value);
  }
  template <class T>
  void optional_section(const char* key, std::optional<T>& value, const char*) {
    if (value) json_[key] = json(*value);
  }
  template <class T>
  void list(const char* key, std::vector<T>& values, const char*) {
    auto& items = json_[key] = nlohmann::ordered_json::array();
    for (T& value : values) items.push_back(json(value));
  }
  template <class T>
  void one_or_list(const char* key, std::vector<T>& values, const char* help) {
    list(key, values, help);
  }

 private:
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

}  // namespace kata
