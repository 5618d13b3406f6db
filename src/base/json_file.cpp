#include "base/json_file.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/file.h"

namespace kata {

using nlohmann::json;

std::string name_in_quotes(const std::string& name) {
  constexpr size_t longest = 100;
  std::string text =
      nlohmann::json(name.substr(0, longest)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (name.size() > longest) text.insert(text.size() - 1, "...");
  return text;
}

// .key, or ["a key"] where it is no plain word.
std::string json_step(const std::string& key) {
  const auto plain = [](char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!key.empty() && key.size() <= 60 && std::all_of(key.begin(), key.end(), plain))
    return fmt::format(".{}", key);
  return fmt::format("[{}]", name_in_quotes(key));
}

namespace {

constexpr int deepest = 64;

// The events of the parser: where it is, and which keys it has met in the objects that are open.
class Progress {
 public:
  explicit Progress(const std::string& file) : file_(file) {}

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
      if (!object.keys.empty()) path += json_step(object.last);
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
  if (const size_t zero = text.find('\0'); zero != text.npos)  // the parser takes it for the end
    fail(ExitCode::data, "{}: no JSON: a zero byte at {}", file, zero);
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

json read_json_object(const std::string& path, uint64_t largest) {
  const InputFile file(path);
  if (file.size() > largest)
    fail(ExitCode::data, "{}: has {} bytes, at most {} are allowed", path, file.size(), largest);
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  const json value = parse_json(text, path, deepest);
  if (!value.is_object()) fail(ExitCode::data, "{}: expected an object, found {}", path, value.type_name());
  return value;
}

}  // namespace kata
