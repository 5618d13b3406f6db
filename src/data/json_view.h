// JSON from strangers: read with limits, then asked for what must be there. Whatever is wrong is
// ExitCode::data and one line: the file, the path of keys, what was expected.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_file.h"

namespace kata {

// A value, and how one gets there: model.merges[3]. It refers to the parsed tree, which must outlive it.
class JsonView {
 public:
  static constexpr size_t longest_short_string = 1024;

  JsonView(const nlohmann::json& value, const std::string& file) : value_(&value), file_(&file) {}

  [[noreturn]] void refuse(const std::string& reason) const;  // "FILE: PATH: REASON"
  std::string where() const;                                  // "FILE: PATH"

  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_array() const { return value_->is_array(); }

  const std::string& string() const;
  const std::string& short_string() const;  // of at most longest_short_string bytes
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number() const;
  const std::string& one_of(std::initializer_list<const char*> values) const;
  size_t choice(std::initializer_list<const char*> values) const;  // the place of the string among them

  // ---- objects ----
  void only(std::initializer_list<const char*> keys) const;  // refuses every other key
  JsonView at(const std::string& key) const;                 // refuses where it is missing
  std::optional<JsonView> find(const std::string& key) const;
  bool boolean(const std::string& key, bool otherwise) const;
  size_t size_of_object() const;
  // Calls visit(key, value) for every member.
  template <class Visit>
  void members(Visit&& visit) const {
    expect(value_->is_object(), "an object");
    for (auto it = value_->begin(); it != value_->end(); ++it)
      visit(it.key(), JsonView(*this, it.value(), &it.key(), 0));
  }

  // ---- arrays ----
  size_t size() const;
  JsonView at(size_t index) const;

 private:
  JsonView(const JsonView& parent, const nlohmann::json& value, const std::string* key, size_t index)
      : value_(&value), file_(parent.file_), path_(parent.path_) {
    path_.push_back({key, index});
  }
  void expect(bool holds, const char* kind) const;

  struct Step {
    const std::string* key;  // null: an index
    size_t index;
  };
  const nlohmann::json* value_;
  const std::string* file_;
  std::vector<Step> path_;
};

}  // namespace kata
