// Results and samples as lm-evaluation-harness shapes them (EVAL A.8), so that its readers read them.
#pragma once

#include <string>
#include <vector>

#include "eval/harness/runner.h"
#include "eval/results.h"

namespace kata::harness {

struct RunRecord {
  RunOptions options;
  Json model;  // name, arguments, parameters: what "config" says of the model
  std::string model_name;
  int64_t batch = 1;
  int64_t truncated = 0;  // requests whose context lost tokens
  double seconds = 0;
};

// Strict JSON: an error that is not defined is the text "N/A", a number that is not finite is null.
Json results_json(const std::vector<TaskResult>& results, const RunRecord& record);

// A line a document: strings, answers and hashes.
std::string samples_jsonl(const TaskResult& result);

// OUTPUT/results.json and OUTPUT/samples_<task>.jsonl.
void write_files(const std::vector<TaskResult>& results, const RunRecord& record, const std::string& output,
                 const std::string& extra_json);

// A row a task and metric: value, error, documents.
ResultTable harness_table(const std::vector<TaskResult>& results);

}  // namespace kata::harness
