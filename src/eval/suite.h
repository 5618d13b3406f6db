// Runs a suite: trains its models and reads them over the grid, or reads one checkpoint over it.
#pragma once

#include <string>

#include "eval/monitor.h"
#include "eval/results.h"

namespace kata {

// Rules that only matter here: two cells of the same kind, or a learning rate given twice, are
// ExitCode::usage, since results are told apart by these.
void check_suite(const SuiteConfig& suite);

// Trains what the output folder does not hold yet, reads what it has not read yet. Says first how long that
// will take. Stopped by the monitor it returns what there is; the next call goes on from there.
SuiteResults run_suite(const SuiteConfig& suite, bool quick, const std::string& output, Monitor& monitor,
                       const Processor& processor = {});

// Reads the model of a run or step folder. ExitCode::usage where its vocabulary is smaller than the task's,
// ExitCode::data where there is no usable checkpoint.
SuiteResults run_checkpoint(const SuiteConfig& suite, bool quick, const std::string& checkpoint,
                            Monitor& monitor, const Processor& processor = {});

// "runs/x/" and "runs/x/checkpoints/step-00000100" as names of files: "x", "x-step-00000100".
std::string checkpoint_name(const std::string& checkpoint);

// results.json and report.html in the folder; `extra_json`: one more place for the former, may be empty.
void write_results(const SuiteResults& results, const std::string& output, const std::string& extra_json);

}  // namespace kata
