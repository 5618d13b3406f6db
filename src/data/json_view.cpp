#include "data/json_view.h"

#include <algorithm>
#include <set>

#include "config/schema.h"
#include "data/inspect.h"

namespace kata {

using nlohmann::json;

namespace {

constexpr size_t longest_shown = 60;  // characters of a file's own text in a message

std::string shown(const std::string& text) {
  if (text.size() <= longest_shown) return quoted_line(text);
  std::string cut = quoted_line(text.substr(0, longest_shown));
  cut.insert(cut.size() - 1, "...");
  return cut;
}

// .key, or ["a key"] where it is no plain word.
std::string step(const std::string& key) {
  const auto plain = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!key.empty() && key.size() <= longest_shown && std::all_of(key.begin(), key.end(), plain))
    return fmt::format(".{}", key);
  return fmt::format("[{}]", shown(key));
}

std::string joined(std::initializer_list<const char*> words) {
  std::string text;
  for (const char* word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

// The events of the parser: where it is, and which keys it has met in the objects that are open.
class Progress {
 public:
  Progress(const std::string& file) : file_(file) {}

  bool event(json::parse_event_t kind, const json& value) {
    switch (kind) {
      case json::parse_event_t::object_start:
        open_.emplace_back();
        break;
      case json::parse_event_t::object_end:
        open_.pop_back();
        break;
      case json::parse_event_t::key: {
        const auto& key = value.get_ref<const std::string&>();
        open_.back().last = key;
        if (!open_.back().keys.insert(key).second)
          fail(ExitCode::data, "{}: {}: this key stands twice", file_, path());
        break;
      }
      default:
        break;
    }
    return true;
  }
  std::string path() const {
    std::string path;
    for (const Open& object : open_)
      if (!object.keys.empty()) path += step(object.last);
    return path.starts_with('.') ? path.substr(1) : path;
  }

 private:
  struct Open {
    std::set<std::string> keys;
    std::string last;
  };
  const std::string& file_;
  std::vector<Open> open_;
};

// Objects and arrays that are open at once, at most.
int levels(std::string_view text) {
  int open = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      most = std::max(most, ++open);
    } else if (c == '}' || c == ']') {
      --open;
    }
  }
  return most;
}

// Without the library's own prefix "[json.exception...] parse error at ...: " and the bytes that it read
// last.
std::string reason_of(const json::parse_error& error) {
  const std::string text = error.what();
  const size_t colon = text.find(": "), begin = colon == std::string::npos ? 0 : colon + 2;
  return text.substr(begin, text.find("; last read", begin) - begin);
}

}  // namespace

json parse_json(std::string_view text, const std::string& file, int most_levels) {
  if (const int found = levels(text); found > most_levels)
    fail(ExitCode::data, "{}: {} objects and arrays inside each other, at most {} are read", file, found,
         most_levels);
  Progress progress(file);
  try {
    return json::parse(
        text, [&](int, json::parse_event_t kind, json& value) { return progress.event(kind, value); });
  } catch (const json::parse_error& error) {
    const auto end = text.begin() + static_cast<int64_t>(std::min(error.byte, text.size()));
    const std::string path = progress.path();
    fail(ExitCode::data, "{}: no JSON at line {}{}: {}", file, 1 + std::count(text.begin(), end, '\n'),
         path.empty() ? "" : ", in " + path, reason_of(error));
  } catch (const json::exception& error) {
    fail(ExitCode::data, "{}: {}: {}", file, progress.path(), error.what());
  }
}

std::string JsonView::where() const {
  std::string path;
  for (const Step& s : path_) path += s.key != nullptr ? step(*s.key) : fmt::format("[{}]", s.index);
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
  if (it == values.end()) refuse(fmt::format("{}, expected one of {}", shown(found), joined(values)));
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
