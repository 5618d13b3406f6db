#include "eval/harness/task.h"

#include "base/error.h"
#include "base/file.h"
#include "config/config_text.h"
#include "config/schema.h"
#include "data/utf8.h"
#include "eval/harness/python_text.h"

namespace kata::harness {

const std::vector<Task>& tasks() {
  static const std::vector<Task> all = [] {
    std::vector<Task> joined = choice_tasks();
    for (std::vector<Task> part : {text_tasks(), recall_tasks()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return all;
}

const Task& find_task(const std::string& name) {
  std::vector<std::string> names;
  for (const Task& task : tasks()) {
    if (task.name == name) return task;
    names.push_back(task.name);
  }
  const std::string near = nearest_name(name, names);
  fail(ExitCode::usage, "--tasks: no task \"{}\"{}; the tasks are {}", printable(name),
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near), fmt::join(names, ", "));
}

Json task_version(const Task& task, const Compat& compat) {
  const bool recall = task.name == "swde" || task.name == "fda" || task.name == "squad_completion";
  return recall ? Json(compat.recall_version) : task.version;
}

std::vector<Document> read_documents(const Task& task, const std::string& folder) {
  const std::string path = folder + "/" + task.name + ".jsonl";
  if (path_exists(path)) return read_jsonl(path);
  if (!task.file.empty() && path_exists(folder + "/" + task.file + ".jsonl"))
    return read_jsonl(folder + "/" + task.file + ".jsonl");
  const std::string raw = folder + "/wiki.test.raw", ruler = folder + "/" + task.name + "/validation.jsonl";
  if (task.name == "wikitext" && path_exists(raw)) {
    const std::string bytes = read_file(raw);
    if (!is_utf8(bytes)) fail(ExitCode::data, "{}: not UTF-8; write the file again as UTF-8", raw);
    std::vector<Document> documents;
    for (std::string& page : wikitext_pages(bytes))
      documents.emplace_back(raw, 1, Json{{"page", std::move(page)}});
    return documents;
  }
  if (task.name.starts_with("niah_") && path_exists(ruler)) return read_jsonl(ruler);
  fail(ExitCode::data,
       "{}: no such file; it holds {}, one JSON object a line; data/README.md says how to get it", path,
       task.source);
}

}  // namespace kata::harness
