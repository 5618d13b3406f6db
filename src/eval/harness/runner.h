// Runs tasks: documents to requests, requests to a scorer, answers to metrics.
#pragma once

#include <string>
#include <vector>

#include "eval/harness/context_window.h"
#include "eval/harness/metrics.h"
#include "eval/harness/task.h"

namespace kata::harness {

struct RunOptions {
  std::vector<std::string> tasks;
  std::string data;  // folder of the task files
  Compat compat = {};
  // based_* tasks: tokens of context and answer, counted by the tokenizer; 0: nothing is cut.
  int64_t context_length = 0;
  const Tokenizer* tokenizer = nullptr;
  double limit = 0;  // the first so many documents of a task; below 1: this part of them; 0: all
  int64_t bootstrap = 100000;
};

struct DocumentResult {
  int64_t id = 0;  // its place in the file, from 0
  Item item;
  Answer answer;
  std::vector<Measured> measured;  // in the order of the task's metrics
};

struct TaskResult {
  const Task* task = nullptr;
  int64_t original = 0;  // documents in the file
  std::vector<DocumentResult> documents;
  std::vector<Aggregate> aggregates;  // in the order of the task's metrics
  int64_t not_finite = 0;             // likelihoods that are no numbers
};

// Documents and requests of a task; its answers are still empty.
TaskResult prepare_task(const Task& task, const RunOptions& options);

// All requests of a kind go to the scorer at once, the tasks in their order; the kinds in the order in which
// they first appear. False where the work was ended: the results are then without answers.
bool answer_tasks(std::vector<TaskResult>& results, LanguageScorer& scorer, const RequestsDone& done);

// Measures of every document, and their aggregates.
void measure_task(TaskResult& result, int64_t bootstrap);

int64_t request_count(const std::vector<TaskResult>& results);

}  // namespace kata::harness
