#include "eval/harness/document.h"

#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "data/utf8.h"
#include "eval/harness/python_text.h"

namespace kata::harness {

namespace {

std::string kind_of(const Json& value) {
  if (value.is_string()) return "text";
  if (value.is_boolean()) return "true or false";
  if (value.is_number_integer()) return fmt::format("the number {}", value.dump());
  return value.type_name();
}

// Depth of brackets outside of strings: looked at before the library, whose depth is the stack's.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest_nesting) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

// The library's message names its own exception and position first; what matters stands behind.
std::string reason(const std::string& message) {
  const size_t at = message.find("syntax error");
  return at == std::string::npos ? message : message.substr(at);
}

Json parse_line(const std::string& path, int64_t line, std::string_view text) {
  if (text.size() > largest_line)
    fail(ExitCode::data, "{}:{}: a line of {} bytes, more than the {} that are read; one document a line",
         path, line, text.size(), largest_line);
  if (!is_utf8(text)) fail(ExitCode::data, "{}:{}: not UTF-8; write the file again as UTF-8", path, line);
  if (too_deep(text))
    fail(ExitCode::data, "{}:{}: nested deeper than {} brackets", path, line, deepest_nesting);
  Json object;
  try {
    object = Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "{}:{}: no JSON: {}", path, line, reason(error.what()));
  }
  if (!object.is_object())
    fail(ExitCode::data, "{}:{}: {}; expected an object, {{\"field\": value, ...}}", path, line,
         kind_of(object));
  return object;
}

}  // namespace

Document::Document(std::string file, int64_t line, Json object)
    : file_(std::move(file)), line_(line), object_(std::move(object)) {}

void Document::refuse(const std::string& field, const std::string& problem) const {
  fail(ExitCode::data, "{}:{}: field \"{}{}\": {}", file_, line_, prefix_, field, problem);
}

const Json& Document::value(const std::string& field, const char* expected) const {
  const auto found = object_.find(field);
  if (found == object_.end()) refuse(field, fmt::format("missing; expected {}", expected));
  return *found;
}

const std::string& Document::text(const std::string& field) const {
  const Json& found = value(field, "text");
  if (!found.is_string()) refuse(field, "expected text, found " + kind_of(found));
  return found.get_ref<const std::string&>();
}

int64_t Document::integer(const std::string& field) const {
  const Json& found = value(field, "an integer");
  if (!found.is_number_integer()) refuse(field, "expected an integer, found " + kind_of(found));
  return found.get<int64_t>();
}

int64_t Document::number(const std::string& field) const {
  const Json& found = value(field, "an integer, possibly as text");
  if (!found.is_string()) return integer(field);
  const auto& text = found.get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(field, fmt::format("expected an integer, found the text {}", Json(text).dump()));
  return number;
}

std::vector<std::string> Document::texts(const std::string& field) const {
  const Json& found = value(field, "a list of texts");
  if (!found.is_array()) refuse(field, "expected a list of texts, found " + kind_of(found));
  std::vector<std::string> all;
  for (const Json& entry : found) {
    if (!entry.is_string())
      refuse(field, fmt::format("entry {}: expected text, found {}", all.size(), kind_of(entry)));
    all.push_back(entry.get<std::string>());
  }
  return all;
}

Document Document::inside(const std::string& field) const {
  const Json& found = value(field, "an object");
  if (!found.is_object()) refuse(field, "expected an object, found " + kind_of(found));
  Document inner(file_, line_, found);
  inner.prefix_ = prefix_ + field + ".";
  return inner;
}

Document Document::with(const std::string& field, std::string text) const {
  Document changed = *this;
  changed.object_[field] = std::move(text);
  return changed;
}

std::vector<Document> parse_jsonl(const std::string& path, std::string_view bytes) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (bytes.starts_with(mark)) bytes.remove_prefix(mark.size());
  std::vector<Document> documents;
  for (int64_t line = 1; !bytes.empty(); ++line) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const std::string_view text = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (strip(text).empty()) continue;
    documents.emplace_back(path, line, parse_line(path, line, text));
  }
  if (documents.empty()) fail(ExitCode::data, "{}: no documents; expected one JSON object a line", path);
  return documents;
}

std::vector<Document> read_jsonl(const std::string& path) {
  return parse_jsonl(path, read_file(path));
}

}  // namespace kata::harness
