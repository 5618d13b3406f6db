// The language tasks: how a document of each becomes requests, exactly as lm-evaluation-harness asks
// (EVAL A.7), and what is measured.
//
//   task               fields                                             scored
//   arc_easy           question, choices {text, label}, answerKey         acc, acc_norm
//   arc_challenge      the same                                           acc, acc_norm
//   piqa               goal, sol1, sol2, label                            acc, acc_norm
//   hellaswag          activity_label, ctx_a, ctx_b, endings, label       acc, acc_norm
//   winogrande         sentence, option1, option2, answer                 acc (partial scoring)
//   openbookqa         question_stem, choices {text, label}, answerKey    acc, acc_norm
//   boolq              passage, question, label                           acc
//   copa               premise, choice1, choice2, question, label         acc
//   sciq               support, question, distractor1-3, correct_answer   acc, acc_norm
//   social_iqa         context, question, answerA-C, label                acc
//   lambada_openai, lambada_standard   text                               perplexity, acc
//   wikitext           page                                               word and byte perplexity, bits a
//   byte swde, fda, squad_completion        text, value                        contains based_swde, based_fda
//   (_twice)     text, key, value                   contains (just read twice) based_squad text, value
//   contains niah_single_1, 2, 3                input, answer_prefix, outputs      recall in percent (RULER's
//   files)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/harness/compat.h"
#include "eval/harness/request.h"

namespace kata::harness {

enum class Output { multiple_choice, loglikelihood, rolling, generate };

struct Task {
  std::string name;
  Json version;  // of lm-eval's task, a number
  Output output = Output::multiple_choice;
  std::vector<std::string> metrics;
  std::string source;     // where the file comes from: data set, configuration, split
  int64_t documents = 0;  // in that split; 0: not known
  bool needs_case = false;
  std::function<Item(const Document&, const Compat&)> build;
  std::string file = {};  // whose documents it reads: another task's; empty = its own
  // What cut_around_answer keeps a part of, and the field of the answer (a text, or a list whose first
  // counts); empty: nothing is cut, the beginning is kept.
  std::string context_field = {}, answer_field = {};
};

// All of them, in the order of the table above.
const std::vector<Task>& tasks();
// ExitCode::usage for an unknown name, with the nearest one.
const Task& find_task(const std::string& name);

// The version under these rules: recall tasks have two.
Json task_version(const Task& task, const Compat& compat);

// The documents of DIR/<task>.jsonl (based_swde, based_fda, based_squad: or the file of swde, fda,
// squad_completion; wikitext: or DIR/wiki.test.raw; niah_*: or DIR/<task>/validation.jsonl). ExitCode::data
// where there is none.
std::vector<Document> read_documents(const Task& task, const std::string& folder);

// ---- the tables of the three kinds ----
std::vector<Task> choice_tasks();
std::vector<Task> text_tasks();
std::vector<Task> recall_tasks();

// ---- parts that have vectors of their own ----
std::string hellaswag_text(std::string_view text);
std::string wikitext_detokenised(std::string_view page);
// The pages of the raw file, as the loader of lm-eval 0.3 cuts them.
std::vector<std::string> wikitext_pages(std::string_view raw);

}  // namespace kata::harness
