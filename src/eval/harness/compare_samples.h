// Two samples files of one task, ours or lm-evaluation-harness's, held against each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kata::harness {

struct SamplesDifference {
  int64_t documents = 0;           // in both
  int64_t count = 0;               // differences in all
  std::vector<std::string> first;  // the first of them, a line each
  double largest_likelihood = 0;   // |difference| over all likelihoods
  int64_t greedy = 0;              // greedy flags that differ
};

// Documents go by doc_id; compared are targets, the strings of every request, stops and lengths of
// generations, answers (likelihoods within `tolerance`) and metrics. Fields that only one file has are passed
// over, but for documents. ExitCode::data for what is no samples file.
SamplesDifference compare_samples(const std::string& left, const std::string& right, double tolerance,
                                  size_t shown = 5);

// Lines for people: the first differences and a last line that counts them.
std::string difference_text(const SamplesDifference& difference, const std::string& left,
                            const std::string& right);

}  // namespace kata::harness
