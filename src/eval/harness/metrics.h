// From answers to numbers (layer three of the harness; EVAL A.6).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/harness/language_scorer.h"

namespace kata::harness {

// Of one document: a value, and for rolling texts the words or bytes that it is spread over.
struct Measured {
  double value = 0;
  int64_t weight = 0;
};

struct Answer {
  std::vector<Likelihood> likelihoods;  // one a request, or
  std::vector<double> rolling;
  std::vector<std::string> texts;
};

// The largest; the first of equals; the first that is not a number before all others.
int64_t first_largest(const std::vector<double>& values);

// One document under one metric:
//   acc               1 where the likeliest choice is the right one; without choices, the greedy flag
//   acc_norm          likewise of likelihoods divided by the choice's length in characters
//   acc_bytes         in bytes
//   perplexity        the likelihood itself
//   word_perplexity, byte_perplexity, bits_per_byte   likelihood, and words or bytes
//   contains          1 where one of the answers occurs in the text, whatever its case
//   string_match_all  the fraction of the answers that do (RULER)
//   exact_match       1 where the text, but for white space around it, is one of the answers
Measured measure(const std::string& metric, const Item& item, const Answer& answer);

struct Aggregate {
  double value = 0;
  std::optional<double> error;  // nothing where it is not defined: shown as "N/A"
};

// Over all documents: means, exp of minus the mean, or likelihoods over their whole weight. The error of a
// mean is its sample deviation over the root of n; that of a perplexity comes from `bootstrap` resamplings
// (0: none).
Aggregate aggregate(const std::string& metric, const std::vector<Measured>& measured, int64_t bootstrap);
bool higher_is_better(const std::string& metric);

double mean(const std::vector<double>& values);
// sqrt(sum (x - mean)^2 / (n - 1)) / sqrt(n); nothing for n < 2.
std::optional<double> mean_error(const std::vector<double>& values);
// Deviation of exp(-mean) over resamplings, drawn in chunks of up to 1000 by random.Random(chunk).
double perplexity_error(const std::vector<double>& likelihoods, int64_t resamplings);

}  // namespace kata::harness
