// Documents of a task: the objects of a JSONL file, each with its place for messages.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kata::harness {

using Json = nlohmann::ordered_json;  // keeps the order of the fields, which hashes and samples show

inline constexpr size_t largest_line = size_t{64} << 20;  // bytes
inline constexpr int deepest_nesting = 64;

// One object. Every reader of a field is ExitCode::data with file, line, field and what was expected, where
// the field is missing or of another type.
class Document {
 public:
  Document(std::string file, int64_t line, Json object);

  const Json& object() const { return object_; }
  int64_t line() const { return line_; }
  bool has(const std::string& field) const { return object_.contains(field); }

  const std::string& text(const std::string& field) const;
  int64_t integer(const std::string& field) const;
  std::vector<std::string> texts(const std::string& field) const;
  // A number that may be written as text: 2 or "2".
  int64_t number(const std::string& field) const;
  // The object in a field, with "field." before its own fields' names.
  Document inside(const std::string& field) const;

  // The same document with another text in a field.
  Document with(const std::string& field, std::string text) const;

  // ExitCode::data: "FILE:LINE: field "FIELD": PROBLEM".
  [[noreturn]] void refuse(const std::string& field, const std::string& problem) const;

 private:
  const Json& value(const std::string& field, const char* expected) const;

  std::string file_, prefix_;
  int64_t line_;
  Json object_;
};

// The documents of a file, one JSON object a line; lines that are empty but for blanks are passed over, as
// are a byte order mark and carriage returns at line ends. ExitCode::data with file and line for what is no
// object, no UTF-8, longer than largest_line or nested deeper than deepest_nesting, and for a file without
// documents.
std::vector<Document> read_jsonl(const std::string& path);
// The same of bytes that `path` stands for.
std::vector<Document> parse_jsonl(const std::string& path, std::string_view bytes);

}  // namespace kata::harness
