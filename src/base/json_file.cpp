#include "base/json_file.h"

#include <set>
#include <vector>

#include "base/file.h"

namespace kata {

using nlohmann::json;

namespace {

constexpr int deepest = 64;

// Sees the parser's events and refuses what the parser would take without a word.
class Guard {
 public:
  explicit Guard(const std::string& path) : path_(path) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= deepest) fail(ExitCode::data, "{}: nested more than {} deep", path_, deepest);
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(value.get<std::string>()).second)
          fail(ExitCode::data, "{}: the key {} appears twice", path_, value.dump().substr(0, 100));
        break;
      case json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  std::string path_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

json read_json_object(const std::string& path, uint64_t largest) {
  const InputFile file(path);
  if (file.size() > largest)
    fail(ExitCode::data, "{}: has {} bytes, at most {} are allowed", path, file.size(), largest);
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  if (const size_t zero = text.find('\0'); zero != std::string::npos)  // the parser takes it for the end
    fail(ExitCode::data, "{}: is not valid JSON at byte {}", path, zero);
  json value;
  try {
    value = json::parse(text, Guard(path));
  } catch (const json::parse_error& error) {
    fail(ExitCode::data, "{}: is not valid JSON at byte {}", path, error.byte);
  } catch (const json::exception&) {  // a number that no double holds
    fail(ExitCode::data, "{}: is not valid JSON", path);
  }
  if (!value.is_object()) fail(ExitCode::data, "{}: expected an object, found {}", path, value.type_name());
  return value;
}

}  // namespace kata
