// The harness as one call: tasks, a model, files and a table.
#pragma once

#include <string>
#include <vector>

#include "base/context.h"
#include "base/error.h"
#include "eval/harness/runner.h"
#include "eval/monitor.h"

namespace kata::harness {

inline constexpr const char* dummy_model = "dummy";

struct EvaluationOptions {
  RunOptions run;
  std::string model;       // "dummy", or a checkpoint: a run or one step folder
  std::string output;      // folder of the results
  std::string json;        // one more place for results.json; empty = none
  int64_t batch = 8;       // rows at a time
  int64_t max_length = 0;  // tokens the model reads at most; 0: what it was trained on, at least 2048
};

// The tasks that a suite of language tasks stands for: "lm", "recall", "recall-jrt"; nothing for another
// name.
std::vector<std::string> suite_tasks(const std::string& suite);

// Prints a table, writes the files. ExitCode::numeric, after writing, where a likelihood is no number.
ExitCode evaluate_tasks(const EvaluationOptions& options, Monitor& monitor, const Processor& processor);

// Prints the differences; ExitCode::data, with their number, where there are any.
void compare_files(const std::string& left, const std::string& right, double tolerance);

}  // namespace kata::harness
