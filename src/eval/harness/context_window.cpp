#include "eval/harness/context_window.h"

#include <algorithm>

#include "data/utf8.h"
#include "eval/harness/python_text.h"

namespace kata::harness {

namespace {

std::string main_answer(const Task& task, const Document& document) {
  if (!document.object().contains(task.answer_field) || !document.object().at(task.answer_field).is_array())
    return document.text(task.answer_field);
  const std::vector<std::string> answers = document.texts(task.answer_field);
  return answers.empty() ? "" : answers[0];
}

// Where the answer begins in the context, in bytes; npos where it does not occur.
size_t position_of(const Document& document, const std::string& context, const std::string& answer) {
  size_t at = find_ignoring_case(context, answer).first;
  if (!document.has("alt_answers")) return at;
  for (const std::string& other : document.texts("alt_answers"))
    if (at == std::string::npos) at = find_ignoring_case(context, other).first;
  return at;
}

}  // namespace

std::optional<Document> cut_around_answer(const Task& task, const Document& document,
                                          const Tokenizer& tokenizer, int64_t context_length) {
  const int64_t wanted = context_length - answer_room;
  const std::string context(strip(document.text(task.context_field)));
  const std::vector<int32_t> ids = tokenizer.encode(context);
  const auto count = static_cast<int64_t>(ids.size());
  int64_t answer_at = 0;  // in tokens
  if (!task.answer_field.empty()) {
    const std::string answer = main_answer(task, document);
    if (code_points(answer) <= 1) return std::nullopt;
    const size_t at = position_of(document, context, answer);
    const std::string_view before =
        at == std::string::npos ? without_last(context) : std::string_view(context).substr(0, at);
    answer_at = static_cast<int64_t>(tokenizer.encode(before).size());
    if (at == std::string::npos && document.has("tok_pos") && answer_at > wanted)
      answer_at = document.integer("tok_pos");
  }
  const int64_t begin = std::clamp<int64_t>(answer_at - wanted / 2, 0, count);
  const int64_t end = std::clamp<int64_t>(begin + wanted, begin, count);
  return document.with(task.context_field,
                       repaired_utf8(tokenizer.decode({ids.begin() + begin, ids.begin() + end})));
}

}  // namespace kata::harness
