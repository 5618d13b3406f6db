#include "eval/harness/result_files.h"

#include <chrono>
#include <cmath>

#include "base/file.h"
#include "base/version.h"
#include "eval/harness/python_text.h"
#include "eval/harness/sha256.h"

namespace kata::harness {

namespace {

// Bytes that are no UTF-8 can stand in what a model wrote.
std::string text_of(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

const char* output_name(Output output) {
  switch (output) {
    case Output::multiple_choice:
      return "multiple_choice";
    case Output::loglikelihood:
      return "loglikelihood";
    case Output::rolling:
      return "loglikelihood_rolling";
    case Output::generate:
      return "generate_until";
  }
  return "";
}

struct Hashes {
  std::string document, prompt, target;  // the document as Python prints it with an indent of two
};
Hashes hashes_of(const Item& item) {
  const Request& first = item.requests.at(0);
  return {sha256_hex(text_of(item.document, 2)),
          sha256_hex(first.kind == RequestKind::rolling ? first.continuation : first.context),
          sha256_hex(item.target)};
}

Json arguments_of(const Item& item) {
  Json arguments = Json::object();
  for (size_t i = 0; i < item.requests.size(); ++i) {
    const Request& request = item.requests[i];
    Json& one = arguments[fmt::format("gen_args_{}", i)];
    switch (request.kind) {
      case RequestKind::loglikelihood:
        one = {{"arg_0", request.context}, {"arg_1", request.continuation}};
        break;
      case RequestKind::rolling:
        one = {{"arg_0", request.continuation}};
        break;
      case RequestKind::generate:
        one = {{"arg_0", request.context}, {"arg_1", request.settings}};
        break;
    }
  }
  return arguments;
}

Json answers_of(const Answer& answer) {
  Json all = Json::array();
  for (const Likelihood& one : answer.likelihoods)
    all.push_back(Json::array({python_float(one.sum), one.greedy ? "True" : "False"}));
  for (const double value : answer.rolling) all.push_back(python_float(value));
  for (const std::string& text : answer.texts) all.push_back(text);
  return all;
}

Json sample(const Task& task, const DocumentResult& document) {
  const Hashes hashes = hashes_of(document.item);
  Json line;
  line["doc_id"] = document.id;
  line["doc"] = document.item.document;
  line["target"] = document.item.target;
  line["arguments"] = arguments_of(document.item);
  const Json answers = answers_of(document.answer);
  line["resps"] = Json::array();
  for (const Json& answer : answers) line["resps"].push_back(Json::array({answer}));
  line["filtered_resps"] = answers;
  line["filter"] = "none";
  line["metrics"] = task.metrics;
  line["doc_hash"] = hashes.document;
  line["prompt_hash"] = hashes.prompt;
  line["target_hash"] = hashes.target;
  for (size_t m = 0; m < task.metrics.size(); ++m) {
    const Measured& measured = document.measured.at(m);
    if (task.output == Output::rolling)
      line[task.metrics[m]] = {measured.value, measured.weight};
    else
      line[task.metrics[m]] = measured.value;
  }
  return line;
}

std::string task_hash(const TaskResult& result) {
  std::string all;
  for (const DocumentResult& document : result.documents) {
    const Hashes hashes = hashes_of(document.item);
    all += hashes.document + hashes.prompt + hashes.target;
  }
  return sha256_hex(all);
}

const char* name_of(BosPolicy bos) {
  return bos == BosPolicy::automatic ? "auto" : bos == BosPolicy::on ? "on" : "off";
}
Json name_of(const Compat& compat) {
  switch (compat.prefix) {
    case Prefix::automatic:
      return "auto";
    case Prefix::bos:
      return "bos";
    case Prefix::eos:
      return "eos";
    case Prefix::id:
      return compat.prefix_id;
  }
  return nullptr;
}

Json config_json(const RunRecord& record) {
  const RunOptions& options = record.options;
  const Compat& compat = options.compat;
  Json config = record.model;
  config["batch_size"] = record.batch;
  config["batch_sizes"] = Json::array();
  config["use_cache"] = nullptr;
  config["limit"] = nullptr;
  if (options.limit >= 1) config["limit"] = static_cast<int64_t>(options.limit);
  if (options.limit > 0 && options.limit < 1) config["limit"] = options.limit;
  config["bootstrap_iters"] = options.bootstrap;
  config["gen_kwargs"] = nullptr;
  config["random_seed"] = 0;
  config["numpy_seed"] = config["torch_seed"] = config["fewshot_seed"] = 1234;
  config["data"] = options.data;
  config["compat"] = {{"name", compat.name},
                      {"bos", name_of(compat.bos)},
                      {"prefix", name_of(compat)},
                      {"recall_version", compat.recall_version},
                      {"squad_stop", compat.squad_long_stop ? "nlnl" : "nl"},
                      {"squad_max_gen_toks", compat.squad_tokens}};
  config["context_length"] = nullptr;
  if (options.context_length > 0) config["context_length"] = options.context_length;
  config["truncated_requests"] = record.truncated;
  return config;
}

Json task_results(const TaskResult& result) {
  Json json = {
      {"name", result.task->name}, {"alias", result.task->name}, {"sample_len", result.documents.size()}};
  for (size_t m = 0; m < result.task->metrics.size(); ++m) {
    const std::string& metric = result.task->metrics[m];
    const Aggregate& aggregate = result.aggregates.at(m);
    json[metric + ",none"] = aggregate.value;
    json[metric + "_stderr,none"] = aggregate.error ? Json(*aggregate.error) : Json("N/A");
  }
  return json;
}

Json task_config(const TaskResult& result, const Compat& compat) {
  Json metrics = Json::array();
  for (const std::string& metric : result.task->metrics)
    metrics.push_back({{"metric", metric}, {"higher_is_better", higher_is_better(metric)}});
  return {{"task", result.task->name},
          {"dataset", result.task->source},
          {"output_type", output_name(result.task->output)},
          {"num_fewshot", 0},
          {"metric_list", metrics},
          {"metadata", {{"version", task_version(*result.task, compat)}}}};
}

std::string shown(double value) {
  return std::abs(value) < 1e6 ? fmt::format("{:.4f}", value) : fmt::format("{:.4g}", value);
}

}  // namespace

Json results_json(const std::vector<TaskResult>& results, const RunRecord& record) {
  Json json;
  for (const char* table : {"results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better",
                            "n-samples", "config", "task_hashes"})
    json[table] = Json::object();
  for (const TaskResult& result : results) {
    const std::string& name = result.task->name;
    json["results"][name] = task_results(result);
    json["configs"][name] = task_config(result, record.options.compat);
    json["versions"][name] = task_version(*result.task, record.options.compat);
    json["n-shot"][name] = 0;
    for (const std::string& metric : result.task->metrics)
      json["higher_is_better"][name][metric] = higher_is_better(metric);
    json["n-samples"][name] = {{"original", result.original}, {"effective", result.documents.size()}};
    json["task_hashes"][name] = task_hash(result);
  }
  json["config"] = config_json(record);
  json["git_hash"] = commit();
  json["date"] = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  json["producer"] = "kataeval " + commit();
  json["lm_eval_version"] = nullptr;  // that program did not make this file
  json["transformers_version"] = nullptr;
  json["upper_git_hash"] = nullptr;
  json["model_source"] = "kata";
  json["model_name"] = record.model_name;
  json["total_evaluation_time_seconds"] = python_float(record.seconds);
  return json;
}

std::string samples_jsonl(const TaskResult& result) {
  std::string lines;
  for (const DocumentResult& document : result.documents)
    lines += text_of(sample(*result.task, document)) + "\n";
  return lines;
}

void write_files(const std::vector<TaskResult>& results, const RunRecord& record, const std::string& output,
                 const std::string& extra_json) {
  for (const TaskResult& result : results)
    write_file_atomic(fmt::format("{}/samples_{}.jsonl", output, result.task->name), samples_jsonl(result));
  const std::string json = text_of(results_json(results, record), 2) + "\n";
  write_file_atomic(output + "/results.json", json);
  if (!extra_json.empty()) write_file_atomic(extra_json, json);
}

ResultTable harness_table(const std::vector<TaskResult>& results) {
  ResultTable table;
  table.rows.push_back({"task", "metric", "value", "stderr", "documents"});
  for (const TaskResult& result : results)
    for (size_t m = 0; m < result.task->metrics.size(); ++m) {
      const Aggregate& aggregate = result.aggregates.at(m);
      table.rows.push_back({result.task->name, result.task->metrics[m], shown(aggregate.value),
                            aggregate.error ? shown(*aggregate.error) : "N/A",
                            fmt::format("{}", result.documents.size())});
    }
  return table;
}

}  // namespace kata::harness
