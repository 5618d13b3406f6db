#include "eval/harness/metrics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "eval/harness/python_text.h"

namespace kata::harness {

namespace {

bool is_right(const Item& item, const Answer& answer, int64_t (*length)(std::string_view)) {
  std::vector<double> scores;
  for (size_t i = 0; i < answer.likelihoods.size(); ++i) {
    const double sum = answer.likelihoods[i].sum;
    scores.push_back(length == nullptr ? sum : sum / static_cast<double>(length(item.choices[i])));
  }
  return first_largest(scores) == item.gold;
}

int64_t byte_length(std::string_view text) {
  return static_cast<int64_t>(text.size());
}

// RULER's cleaning: control characters become line ends, and nothing stands around the text.
std::string cleaned(std::string_view text) {
  std::string clean(strip(text));
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20) c = '\n';
  return std::string(strip(clean));
}

double fraction_found(const std::string& text, const std::vector<std::string>& answers) {
  const std::string given = lower(cleaned(text));
  double found = 0;
  for (const std::string& answer : answers) found += given.find(lower(answer)) != std::string::npos;
  return found / static_cast<double>(answers.size());
}

bool any(const std::vector<std::string>& answers, const std::function<bool(const std::string&)>& holds) {
  return std::any_of(answers.begin(), answers.end(), holds);
}

// Python's sum(): in order, in double.
double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

}  // namespace

int64_t first_largest(const std::vector<double>& values) {
  size_t best = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return static_cast<int64_t>(i);
    if (values[i] > values[best]) best = i;
  }
  return static_cast<int64_t>(best);
}

Measured measure(const std::string& metric, const Item& item, const Answer& answer) {
  if (metric == "acc") {
    const bool right =
        item.choices.empty() ? answer.likelihoods.at(0).greedy : is_right(item, answer, nullptr);
    return {right ? 1.0 : 0.0};
  }
  if (metric == "acc_norm") return {is_right(item, answer, code_points) ? 1.0 : 0.0};
  if (metric == "acc_bytes") return {is_right(item, answer, byte_length) ? 1.0 : 0.0};
  if (metric == "perplexity") return {answer.likelihoods.at(0).sum};
  if (metric == "word_perplexity") return {answer.rolling.at(0), item.words};
  if (metric == "byte_perplexity" || metric == "bits_per_byte") return {answer.rolling.at(0), item.bytes};
  const std::string& text = answer.texts.at(0);
  if (metric == "string_match_all") return {fraction_found(text, item.answers)};
  if (metric == "contains")
    return {any(item.answers, [&](const auto& one) { return contains_ignoring_case(text, one); }) ? 1.0
                                                                                                  : 0.0};
  if (metric == "exact_match")
    return {any(item.answers, [&](const auto& one) { return strip(text) == strip(one); }) ? 1.0 : 0.0};
  KATA_CHECK(false, "metric {}", metric);
  return {};
}

double mean(const std::vector<double>& values) {
  return sum(values) / static_cast<double>(values.size());
}

std::optional<double> mean_error(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const double middle = mean(values), n = static_cast<double>(values.size());
  std::vector<double> squares;
  for (const double value : values) squares.push_back((value - middle) * (value - middle));
  return std::sqrt(sum(squares) / (n - 1)) / std::sqrt(n);
}

double perplexity_error(const std::vector<double>& likelihoods, int64_t resamplings) {
  constexpr int64_t chunk = 1000;
  const auto size = static_cast<int64_t>(likelihoods.size());
  const int64_t chunk_size = std::min(chunk, resamplings), chunks = resamplings / chunk_size;
  std::vector<double> values(static_cast<size_t>(chunks * chunk_size));
#pragma omp parallel for schedule(dynamic)
  for (int64_t c = 0; c < chunks; ++c) {
    PythonRandom random(static_cast<uint64_t>(c));
    for (int64_t i = 0; i < chunk_size; ++i) {
      double total = 0;
      for (int64_t k = 0; k < size; ++k) total += likelihoods[static_cast<size_t>(random.index(size))];
      values[static_cast<size_t>(c * chunk_size + i)] = std::exp(-(total / static_cast<double>(size)));
    }
  }
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

Aggregate aggregate(const std::string& metric, const std::vector<Measured>& measured, int64_t bootstrap) {
  std::vector<double> values;
  double weight = 0;
  for (const Measured& one : measured) {
    values.push_back(one.value);
    weight += static_cast<double>(one.weight);
  }
  if (metric == "word_perplexity" || metric == "byte_perplexity")
    return {std::exp(-sum(values) / weight), {}};
  if (metric == "bits_per_byte") return {-sum(values) / weight / std::numbers::ln2, {}};
  if (metric == "contains") return {mean(values), {}};
  if (metric == "string_match_all") {  // percent, of two digits, half to even on the exact value
    const std::string rounded = fmt::format("{:.2f}", 100 * mean(values));
    return {std::stod(rounded), {}};
  }
  if (metric != "perplexity") return {mean(values), bootstrap > 0 ? mean_error(values) : std::nullopt};
  Aggregate result{std::exp(-mean(values)), {}};
  if (bootstrap > 1) result.error = perplexity_error(values, bootstrap);
  return result;
}

bool higher_is_better(const std::string& metric) {
  return !metric.ends_with("perplexity") && metric != "bits_per_byte";
}

}  // namespace kata::harness
