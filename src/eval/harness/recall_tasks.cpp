// Tasks whose answer stands in the prompt: it has to come up again in what the model writes.
#include "base/error.h"
#include "eval/harness/python_text.h"
#include "eval/harness/task.h"

namespace kata::harness {

namespace {

constexpr int64_t answer_tokens = 48, needle_tokens = 128;

Request generation(std::string context, std::vector<std::string> until, int64_t max_tokens) {
  Request request{RequestKind::generate, std::move(context), "", until, max_tokens};
  request.settings = {{"until", std::move(until)}, {"max_gen_toks", max_tokens}};
  return request;
}

Item find_answer(const Document& document, Request request, std::string answer) {
  Item item;
  item.document = document.object();
  item.requests.push_back(std::move(request));
  item.answers = {answer};
  item.target = std::move(answer);
  return item;
}

std::string recall_text(const Document& document, const char* field, const Compat& compat) {
  const std::string& text = document.text(field);
  return compat.recall_version == 0 ? text : std::string(strip(text));
}

Item recall(const Document& document, const Compat& compat) {
  return find_answer(document, generation(recall_text(document, "text", compat), {"\n"}, answer_tokens),
                     recall_text(document, "value", compat));
}

Item squad_completion(const Document& document, const Compat& compat) {
  Request request = generation(recall_text(document, "text", compat),
                               {compat.squad_long_stop ? "\n\n" : "\n"}, compat.squad_tokens);
  if (compat.squad_long_stop)  // the task takes its stop from settings that name more than that
    request.settings = {{"temperature", 0.0},
                        {"do_sample", false},
                        {"max_gen_toks", request.max_tokens},
                        {"until", request.until}};
  return find_answer(document, std::move(request), recall_text(document, "value", compat));
}

// ---- the form of "just read twice": based_* ----

std::string_view trim(std::string_view text, char c) {
  while (text.starts_with(c)) text.remove_prefix(1);
  while (text.ends_with(c)) text.remove_suffix(1);
  return text;
}

// `text` without the copies of `question` at its end, whatever their case; at most `copies` of them.
std::string without_question(std::string text, const std::string& question, int64_t copies) {
  const std::string wanted = lower(question);
  const int64_t length = code_points(question);
  for (int64_t i = 0; i < copies && lower(text).ends_with(wanted); ++i)
    for (int64_t left = length; left > 0 && !text.empty(); text.pop_back())
      left -= (static_cast<unsigned char>(text.back()) & 0xC0) != 0x80;
  return text;
}

constexpr int64_t all_copies = INT64_MAX;

std::string with_full_stop(std::string_view text) {
  return std::string(text) + (text.ends_with('.') ? "" : ".");
}

struct Keyed {
  std::string body, key;  // the page without its question, the key with a capital
};
Keyed keyed(const Document& document, bool webpage, bool twice) {
  std::string text = document.text("text");
  if (webpage) text = text.substr(0, text.find("Summary of information above..."));
  const std::string& key = document.text("key");
  if (key.empty()) document.refuse("key", "is empty");
  text = without_question(text, key + ":", all_copies);
  std::string body;
  if (!webpage)
    body = with_full_stop(trim(trim(text, '\n'), '.'));
  else if (twice)
    body = with_full_stop(strip(trim(trim(text, '\n'), '.')));
  else
    body = std::string(trim(strip(text), '.')) + ".";
  return {body, upper_first(key)};
}

template <bool webpage, bool twice>
Item based_key(const Document& document, const Compat&) {
  const auto [body, key] = keyed(document, webpage, twice);
  const std::string prompt = twice ? "Information about " + std::string(trim(key + ":", ':')) + ". " + body +
                                         "\n" + body + " " + key + ":"
                                   : body + " " + key + ":";
  return find_answer(document, generation(prompt, {"\n"}, answer_tokens), document.text("value"));
}

Item based_squad(const Document& document, const Compat&) {
  return find_answer(document, generation(std::string(strip(document.text("text"))), {"\n"}, answer_tokens),
                     document.text("value"));
}

enum class Questions { natural, drop, trivia };

template <Questions kind, bool twice>
Item based_question(const Document& document, const Compat&) {
  std::string context(strip(document.text("context")));
  if (kind == Questions::trivia)
    for (const char* mark : {"[PAR]", "[DOC]", "[TLE]"}) context = replace_all(context, mark, "");
  const std::string question(strip(document.text("question")));
  if (question.empty()) document.refuse("question", "is empty");
  if (kind == Questions::natural && !twice) {
    if (context.ends_with(question)) context.resize(context.size() - question.size());
  } else {
    context = without_question(context, question, all_copies);
  }
  const std::string_view body = trim(strip(context), '.');
  std::string prompt;
  if (twice) {
    const std::string once = std::string(strip(body)) + ".";
    std::string_view intro = document.text("orig_question");
    if (kind != Questions::trivia) intro = trim(intro, ':');
    prompt = std::string(intro) + " " + once + "\n" + once + " " + question;
  } else {
    prompt = std::string(body) + ". " + question;
  }
  const std::vector<std::string> answers = document.texts("answers");
  Item item = find_answer(document, generation(prompt, {"\n"}, answer_tokens), "");
  if (answers.empty()) document.refuse("answers", "is empty; expected at least one text");
  item.target = " " + answers[0];
  item.answers = answers;
  return item;
}

// RULER's own files: the model reads input and answer_prefix, and its answer holds every one of outputs.
Item needle(const Document& document, const Compat&) {
  const std::vector<std::string> outputs = document.texts("outputs");
  if (outputs.empty()) document.refuse("outputs", "is empty; expected at least one text");
  Item item = find_answer(
      document, generation(document.text("input") + document.text("answer_prefix"), {}, needle_tokens), "");
  item.answers = outputs;
  item.target = fmt::format("{}", fmt::join(outputs, ", "));
  return item;
}

}  // namespace

std::vector<Task> recall_tasks() {
  const std::vector<std::string> contains = {"contains"}, match = {"string_match_all"};
  std::vector<Task> all;
  const auto add = [&](const char* name, int version, const std::vector<std::string>& metrics,
                       const std::string& source, Item (*build)(const Document&, const Compat&),
                       const char* file = "") {
    all.push_back({name, version, Output::generate, metrics, source, 0, true, build, file});
  };
  add("swde", 1, contains, "hazyresearch/based-swde-v2, validation", recall);
  add("fda", 1, contains, "hazyresearch/based-fda, validation", recall);
  add("squad_completion", 1, contains, "hazyresearch/based-squad, validation", squad_completion);
  add("based_swde", 0, contains, "hazyresearch/based-swde-v2, validation", based_key<true, false>, "swde");
  add("based_swde_twice", 0, contains, "hazyresearch/based-swde-v2, validation", based_key<true, true>,
      "swde");
  add("based_fda", 0, contains, "hazyresearch/based-fda, validation", based_key<false, false>, "fda");
  add("based_fda_twice", 0, contains, "hazyresearch/based-fda, validation", based_key<false, true>, "fda");
  add("based_squad", 0, contains, "hazyresearch/based-squad, validation", based_squad, "squad_completion");
  for (const char* length : {"512", "1024", "2048"}) {
    const std::string name = fmt::format("based_nq_{}", length),
                      source = fmt::format("hazyresearch/{}, validation", name);
    add(name.c_str(), 0, contains, source, based_question<Questions::natural, false>);
    add((name + "_twice").c_str(), 0, contains, source, based_question<Questions::natural, true>,
        name.c_str());
  }
  const char* drop = "hazyresearch/based_drop, validation";
  const char* trivia = "hazyresearch/based_triviaqa, validation";
  add("based_drop", 0, contains, drop, based_question<Questions::drop, false>);
  add("based_drop_twice", 0, contains, drop, based_question<Questions::drop, true>, "based_drop");
  add("based_triviaqa", 0, contains, trivia, based_question<Questions::trivia, false>);
  add("based_triviaqa_twice", 0, contains, trivia, based_question<Questions::trivia, true>, "based_triviaqa");
  for (const char* name : {"niah_single_1", "niah_single_2", "niah_single_3"})
    add(name, 0, match, "the validation.jsonl that RULER writes", needle);
  for (Task& task : all) {
    if (!task.name.starts_with("based_")) continue;
    const bool questions = task.name.starts_with("based_nq") || task.name.starts_with("based_drop") ||
                           task.name.starts_with("based_triviaqa");
    task.context_field = questions ? "context" : "text";
    if (!questions) task.answer_field = "value";
    if (task.name.starts_with("based_nq")) task.answer_field = "answers";
  }
  return all;
}

}  // namespace kata::harness
