#include "eval/harness/compare_samples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "eval/harness/document.h"

namespace kata::harness {

namespace {

// NaN and Infinity, which Python writes although JSON has no such words, become text.
std::string with_quoted_words(std::string_view bytes) {
  std::string result;
  bool quoted = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\' && i + 1 < bytes.size()) {
      result += c;
      result += bytes[++i];
      continue;
    }
    bool replaced = false;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"})
      if (!quoted && !replaced && bytes.substr(i).starts_with(word)) {
        result.append("\"").append(word).append("\"");
        i += word.size() - 1;
        replaced = true;
      }
    if (!replaced) result += c;
  }
  return result;
}

std::map<int64_t, Document> by_id(const std::string& path) {
  std::map<int64_t, Document> documents;
  for (Document& document : parse_jsonl(path, with_quoted_words(read_file(path)))) {
    const int64_t id = document.number("doc_id");
    if (!documents.emplace(id, std::move(document)).second)
      fail(ExitCode::data, "{}: two lines have doc_id {}; expected one a document", path, id);
  }
  return documents;
}

// A number, or the text of one; beside a number, true and false are 1 and 0.
std::optional<double> number_of(const Json& value, const Json& beside) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean() && beside.is_number()) return value.get<bool>() ? 1.0 : 0.0;
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return std::nullopt;
}

std::string as_text(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Both forms in which requests are written: a list of lists, or named arguments.
std::vector<Json> requests_of(const Document& document) {
  std::vector<Json> requests;
  if (!document.has("arguments"))
    document.refuse("arguments", "missing; expected the requests of the document");
  for (const Json& request : document.object().at("arguments")) {
    Json list = Json::array();
    for (const Json& argument : request) list.push_back(argument);
    requests.push_back(list);
  }
  return requests;
}

// What a difference shows of a value.
std::string shown_value(const Json& value) {
  constexpr size_t most = 160;
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= most ? text
                             : text.substr(0, most / 2) + " ... " + text.substr(text.size() - most / 2);
}

class Comparison {
 public:
  Comparison(double tolerance, size_t shown, SamplesDifference& result)
      : tolerance_(tolerance), shown_(shown), result_(result) {}

  void compare(int64_t id, const Document& left, const Document& right) {
    id_ = id;
    ++result_.documents;
    const Json &a = left.object(), &b = right.object();
    if (a.contains("target") && b.contains("target") && as_text(a.at("target")) != as_text(b.at("target")))
      differ("target", a.at("target"), b.at("target"));
    requests(requests_of(left), requests_of(right));
    const char* answers = "filtered_resps";
    if (a.contains(answers) && b.contains(answers)) values("answer", a.at(answers), b.at(answers));
    if (!a.contains("metrics") || !a.at("metrics").is_array()) return;
    for (const Json& metric : a.at("metrics")) {
      const std::string name = as_text(metric);
      if (a.contains(name) && b.contains(name)) values(name, a.at(name), b.at(name));
    }
  }

  void missing(int64_t id, const std::string& path) {
    add(fmt::format("document {} is not in {}", id, path));
  }

 private:
  void add(const std::string& line) {
    ++result_.count;
    if (result_.first.size() < shown_) result_.first.push_back(line);
  }
  void differ(const std::string& what, const Json& left, const Json& right) {
    add(fmt::format("document {}: {}: {} | {}", id_, what, shown_value(left), shown_value(right)));
  }

  void requests(const std::vector<Json>& left, const std::vector<Json>& right) {
    if (left.size() != right.size()) {
      differ("number of requests", left.size(), right.size());
      return;
    }
    for (size_t i = 0; i < left.size(); ++i)
      for (size_t k = 0; k < std::max(left[i].size(), right[i].size()); ++k) {
        const Json none = nullptr;
        const Json& a = k < left[i].size() ? left[i][k] : none;
        const Json& b = k < right[i].size() ? right[i][k] : none;
        const std::string what = fmt::format("request {}, argument {}", i, k);
        if (!a.is_object() || !b.is_object()) {
          if (a != b) differ(what, a, b);
          continue;
        }
        for (const char* key : {"until", "max_gen_toks"})
          if (a.value(key, none) != b.value(key, none)) differ(what + ", " + key, a, b);
      }
  }

  // Numbers within the tolerance, True and False as they are, other text equal.
  void values(const std::string& what, const Json& left, const Json& right) {
    if (left.is_array() && right.is_array()) {
      if (left.size() != right.size()) return differ(what, left, right);
      for (size_t i = 0; i < left.size(); ++i) values(fmt::format("{} {}", what, i), left[i], right[i]);
      return;
    }
    const auto a = number_of(left, right), b = number_of(right, left);
    if (a && b) {
      const double difference = std::abs(*a - *b);
      if (what.starts_with("answer") && std::isfinite(difference))
        result_.largest_likelihood = std::max(result_.largest_likelihood, difference);
      const bool same = *a == *b || (std::isnan(*a) && std::isnan(*b));
      if (!same && !(difference <= tolerance_)) differ(what, left, right);
    } else if (as_text(left) != as_text(right)) {
      const bool flags = as_text(left) == "True" || as_text(left) == "False";
      result_.greedy += flags && what.starts_with("answer");
      differ(what, left, right);
    }
  }

  double tolerance_;
  size_t shown_;
  SamplesDifference& result_;
  int64_t id_ = 0;
};

}  // namespace

SamplesDifference compare_samples(const std::string& left, const std::string& right, double tolerance,
                                  size_t shown) {
  const std::map<int64_t, Document> a = by_id(left), b = by_id(right);
  SamplesDifference result;
  Comparison comparison(tolerance, shown, result);
  for (const auto& [id, document] : a) {
    const auto other = b.find(id);
    if (other == b.end())
      comparison.missing(id, right);
    else
      comparison.compare(id, document, other->second);
  }
  for (const auto& [id, document] : b)
    if (!a.contains(id)) comparison.missing(id, left);
  return result;
}

std::string difference_text(const SamplesDifference& difference, const std::string& left,
                            const std::string& right) {
  std::string text;
  for (const std::string& line : difference.first) text += line + "\n";
  if (difference.count > static_cast<int64_t>(difference.first.size()))
    text +=
        fmt::format("... and {} more\n", difference.count - static_cast<int64_t>(difference.first.size()));
  return text + fmt::format(
                    "{} | {}: {} documents in both, {} differences; likelihoods differ by up to {:.3g}, "
                    "greedy flags in {}\n",
                    left, right, difference.documents, difference.count, difference.largest_likelihood,
                    difference.greedy);
}

}  // namespace kata::harness
