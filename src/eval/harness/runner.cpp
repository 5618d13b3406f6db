#include "eval/harness/runner.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "eval/harness/python_text.h"

namespace kata::harness {

namespace {

int64_t taken(double limit, int64_t documents) {
  if (limit <= 0) return documents;
  const double wanted = limit < 1 ? std::ceil(limit * static_cast<double>(documents)) : limit;
  return std::min(documents, static_cast<int64_t>(wanted));
}

// The requests of one kind, and where their answers go.
struct Queue {
  RequestKind kind = RequestKind::loglikelihood;
  std::vector<Asked> asked;
  std::vector<Answer*> answers;
};

std::vector<Queue> queues_of(std::vector<TaskResult>& results) {
  std::vector<Queue> queues;
  for (TaskResult& result : results)
    for (DocumentResult& document : result.documents)
      for (const Request& request : document.item.requests) {
        auto queue = std::find_if(queues.begin(), queues.end(),
                                  [&](const Queue& one) { return one.kind == request.kind; });
        if (queue == queues.end()) queue = queues.insert(queue, Queue{request.kind, {}, {}});
        queue->asked.push_back({&request, fmt::format("{}, document {}", result.task->name, document.id)});
        queue->answers.push_back(&document.answer);
      }
  return queues;
}

template <class T>
bool put(const std::vector<T>& values, const Queue& queue, std::vector<T> Answer::*place) {
  if (values.size() != queue.asked.size()) return false;
  for (size_t i = 0; i < values.size(); ++i) (queue.answers[i]->*place).push_back(values[i]);
  return true;
}

}  // namespace

TaskResult prepare_task(const Task& task, const RunOptions& options) {
  if (task.needs_case) require_case_tables("the task " + task.name);
  TaskResult result;
  result.task = &task;
  const std::vector<Document> documents = read_documents(task, options.data);
  result.original = static_cast<int64_t>(documents.size());
  const int64_t count = taken(options.limit, result.original);
  for (int64_t id = 0; id < count; ++id) {
    std::optional<Document> document = documents[static_cast<size_t>(id)];
    if (options.context_length > 0 && !task.context_field.empty())
      document = cut_around_answer(task, *document, *options.tokenizer, options.context_length);
    if (document) result.documents.push_back({id, task.build(*document, options.compat), {}, {}});
  }
  if (result.documents.empty()) fail(ExitCode::data, "{}: no document has an answer to look for", task.name);
  return result;
}

int64_t request_count(const std::vector<TaskResult>& results) {
  int64_t count = 0;
  for (const TaskResult& result : results)
    for (const DocumentResult& document : result.documents)
      count += static_cast<int64_t>(document.item.requests.size());
  return count;
}

bool answer_tasks(std::vector<TaskResult>& results, LanguageScorer& scorer, const RequestsDone& done) {
  for (const Queue& queue : queues_of(results)) {
    bool complete = false;
    if (queue.kind == RequestKind::loglikelihood)
      complete = put(scorer.loglikelihood(queue.asked, done), queue, &Answer::likelihoods);
    else if (queue.kind == RequestKind::rolling)
      complete = put(scorer.rolling(queue.asked, done), queue, &Answer::rolling);
    else
      complete = put(scorer.generate(queue.asked, done), queue, &Answer::texts);
    if (!complete) return false;
  }
  return true;
}

void measure_task(TaskResult& result, int64_t bootstrap) {
  const std::vector<std::string>& metrics = result.task->metrics;
  for (DocumentResult& document : result.documents) {
    for (const Likelihood& likelihood : document.answer.likelihoods)
      result.not_finite += !std::isfinite(likelihood.sum);
    for (const double value : document.answer.rolling) result.not_finite += !std::isfinite(value);
    for (const std::string& metric : metrics)
      document.measured.push_back(measure(metric, document.item, document.answer));
  }
  for (size_t m = 0; m < metrics.size(); ++m) {
    std::vector<Measured> values;
    for (const DocumentResult& document : result.documents) values.push_back(document.measured[m]);
    result.aggregates.push_back(aggregate(metrics[m], values, bootstrap));
  }
}

}  // namespace kata::harness
