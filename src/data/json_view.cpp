#include "data/json_view.h"

#include <algorithm>

#include "config/schema.h"

namespace kata {

using nlohmann::json;

namespace {

std::string joined(std::initializer_list<const char*> words) {
  std::string text;
  for (const char* word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

}  // namespace

std::string JsonView::where() const {
  std::string path;
  for (const Step& s : path_) path += s.key != nullptr ? json_step(*s.key) : fmt::format("[{}]", s.index);
  if (path.starts_with('.')) path.erase(0, 1);
  return *file_ + (path.empty() ? "" : ": " + path);
}

void JsonView::refuse(const std::string& reason) const {
  fail(ExitCode::data, "{}: {}", where(), reason);
}

void JsonView::expect(bool holds, const char* kind) const {
  if (!holds) refuse(fmt::format("{}, expected {}", value_->is_null() ? "null" : value_->type_name(), kind));
}

const std::string& JsonView::string() const {
  expect(value_->is_string(), "a string");
  return value_->get_ref<const std::string&>();
}

bool JsonView::boolean() const {
  expect(value_->is_boolean(), "true or false");
  return value_->get<bool>();
}

int64_t JsonView::integer(int64_t low, int64_t high) const {
  expect(value_->is_number_integer(), "a whole number");
  const bool fits =
      !value_->is_number_unsigned() || value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  const int64_t value = fits ? value_->get<int64_t>() : high;
  if (!fits || value < low || value > high)
    refuse(fmt::format("{}, expected a whole number from {} to {}", value_->dump(), low, high));
  return value;
}

double JsonView::number() const {
  expect(value_->is_number(), "a number");
  return value_->get<double>();
}

size_t JsonView::choice(std::initializer_list<const char*> values) const {
  const std::string& found = string();
  const auto it = std::find(values.begin(), values.end(), found);
  if (it == values.end())
    refuse(fmt::format("{}, expected one of {}", name_in_quotes(found), joined(values)));
  return static_cast<size_t>(it - values.begin());
}

const std::string& JsonView::short_string() const {
  if (string().size() > longest_short_string)
    refuse(fmt::format("{} bytes, at most {} are read", string().size(), longest_short_string));
  return string();
}

const std::string& JsonView::one_of(std::initializer_list<const char*> values) const {
  choice(values);
  return string();
}

void JsonView::only(std::initializer_list<const char*> keys) const {
  members([&](const std::string& key, const JsonView& value) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) return;
    const std::string nearest = nearest_name(key, {keys.begin(), keys.end()});
    value.refuse("unknown key" +
                 (nearest.empty() ? ", expected one of " + joined(keys) : ", did you mean " + nearest + "?"));
  });
}

std::optional<JsonView> JsonView::find(const std::string& key) const {
  expect(value_->is_object(), "an object");
  const auto it = value_->find(key);
  if (it == value_->end()) return std::nullopt;
  return JsonView(*this, it.value(), &it.key(), 0);
}

JsonView JsonView::at(const std::string& key) const {
  const auto found = find(key);
  if (!found) refuse(fmt::format("\"{}\" is missing", key));
  return *found;
}

bool JsonView::boolean(const std::string& key, bool otherwise) const {
  const auto found = find(key);
  return found ? found->boolean() : otherwise;
}

size_t JsonView::size_of_object() const {
  expect(value_->is_object(), "an object");
  return value_->size();
}

size_t JsonView::size() const {
  expect(value_->is_array(), "an array");
  return value_->size();
}

JsonView JsonView::at(size_t index) const {
  KATA_CHECK(index < size(), "{} of {}", index, size());
  return JsonView(*this, (*value_)[index], nullptr, index);
}

}  // namespace kata
