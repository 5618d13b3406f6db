// Tasks that choose: the likelihood of each choice after the prompt, or of one ending after each choice.
#include <algorithm>

#include "base/error.h"
#include "eval/harness/python_text.h"
#include "eval/harness/task.h"

namespace kata::harness {

namespace {

// A request a choice: a blank always stands between prompt and choice.
Item choose(const Document& document, const std::string& prompt, std::vector<std::string> choices,
            int64_t gold) {
  Item item;
  item.document = document.object();
  for (const std::string& choice : choices)
    item.requests.push_back({RequestKind::loglikelihood, prompt, " " + choice});
  item.choices = std::move(choices);
  item.gold = gold;
  item.target = std::to_string(gold);
  return item;
}

// The label in a field, counted from `first`.
int64_t label(const Document& document, const std::string& field, size_t choices, int64_t first = 0) {
  const int64_t value = document.number(field);
  const int64_t last = first + static_cast<int64_t>(choices) - 1;
  if (value < first || value > last)
    document.refuse(field, fmt::format("expected a number from {} to {}, found {}", first, last, value));
  return value - first;
}

// choices {text, label} and answerKey, a name out of label.
struct Named {
  std::vector<std::string> texts;
  int64_t gold = 0;
};
Named named_choices(const Document& document) {
  const Document choices = document.inside("choices");
  Named named{choices.texts("text")};
  const std::vector<std::string> labels = choices.texts("label");
  if (labels.size() != named.texts.size() || labels.empty())
    choices.refuse("label", fmt::format("{} labels of {} texts; expected one each, and at least one",
                                        labels.size(), named.texts.size()));
  const std::string key(strip_left(document.text("answerKey")));
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end())
    document.refuse("answerKey", fmt::format("expected one of the choices' labels ({}), found {}",
                                             fmt::join(labels, ", "), Json(key).dump()));
  named.gold = found - labels.begin();
  return named;
}

Item arc(const Document& document, const Compat&) {
  const std::string prompt = "Question: " + document.text("question") + "\nAnswer:";
  const Named named = named_choices(document);
  return choose(document, prompt, named.texts, named.gold);
}

Item openbookqa(const Document& document, const Compat&) {
  const Named named = named_choices(document);
  return choose(document, document.text("question_stem"), named.texts, named.gold);
}

Item piqa(const Document& document, const Compat&) {
  return choose(document, "Question: " + document.text("goal") + "\nAnswer:",
                {document.text("sol1"), document.text("sol2")}, label(document, "label", 2));
}

Item hellaswag(const Document& document, const Compat&) {
  const std::string prompt = hellaswag_text(document.text("activity_label") + ": " + document.text("ctx_a") +
                                            " " + capitalize(document.text("ctx_b")));
  std::vector<std::string> endings = document.texts("endings");
  if (endings.empty()) document.refuse("endings", "is empty; expected a list of texts");
  for (std::string& ending : endings) ending = hellaswag_text(ending);
  Item item = choose(document, prompt, endings, label(document, "label", endings.size()));
  item.document["query"] = prompt;
  item.document["choices"] = endings;
  item.document["gold"] = item.gold;
  return item;
}

// The sentence's end is scored after each option in the blank's place.
Item winogrande(const Document& document, const Compat&) {
  const std::string& sentence = document.text("sentence");
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos) document.refuse("sentence", "has no _ in it; expected one as the blank");
  const std::vector<std::string> options = {document.text("option1"), document.text("option2")};
  if (document.text("answer").empty())
    document.refuse("answer", "is empty; the test split has no answers, take the validation split");
  Item item = choose(document, "", options, label(document, "answer", 2, 1));
  item.target = strip(std::string_view(sentence).substr(blank + 1));
  for (size_t k = 0; k < options.size(); ++k)
    item.requests[k] = {RequestKind::loglikelihood, sentence.substr(0, blank) + options[k],
                        " " + item.target};
  return item;
}

Item boolq(const Document& document, const Compat&) {
  return choose(document,
                document.text("passage") + "\nQuestion: " + document.text("question") + "?\nAnswer:",
                {"no", "yes"}, label(document, "label", 2));
}

Item copa(const Document& document, const Compat&) {
  const std::string_view premise = without_last(strip(document.text("premise")));  // without its full stop
  const std::string& question = document.text("question");
  if (question != "cause" && question != "effect")
    document.refuse("question", fmt::format("expected cause or effect, found {}", Json(question).dump()));
  std::vector<std::string> choices;
  for (const char* field : {"choice1", "choice2"}) {
    if (document.text(field).empty()) document.refuse(field, "is empty");
    choices.push_back(" " + lower_first(document.text(field)));
  }
  Item item = choose(document, std::string(premise) + (question == "cause" ? " because" : " therefore"),
                     choices, label(document, "label", 2));
  item.target = choices[static_cast<size_t>(item.gold)];
  return item;
}

Item sciq(const Document& document, const Compat&) {
  const std::string prompt = std::string(strip_left(document.text("support"))) +
                             "\nQuestion: " + document.text("question") + "\nAnswer:";
  return choose(document, prompt,
                {document.text("distractor1"), document.text("distractor2"), document.text("distractor3"),
                 document.text("correct_answer")},
                3);
}

Item social_iqa(const Document& document, const Compat&) {
  return choose(document, "Q: " + document.text("context") + " " + document.text("question") + "\nA:",
                {document.text("answerA"), document.text("answerB"), document.text("answerC")},
                label(document, "label", 3, 1));
}

}  // namespace

std::string hellaswag_text(std::string_view text) {
  const std::string titled = replace_all(strip(text), " [title]", ". ");
  std::string kept;
  for (size_t at = 0; at < titled.size();) {
    // A bracket that closes on its own line goes, with what is in it.
    const size_t end = titled[at] == '[' ? titled.find_first_of("]\n", at) : std::string::npos;
    if (end != std::string::npos && titled[end] == ']') {
      at = end + 1;
    } else {
      kept += titled[at++];
    }
  }
  return replace_all(kept, "  ", " ");
}

std::vector<Task> choice_tasks() {
  const std::vector<std::string> acc = {"acc"}, both = {"acc", "acc_norm"};
  constexpr Output choice = Output::multiple_choice;
  return {
      {"arc_easy", 1.0, choice, both, "allenai/ai2_arc, ARC-Easy, test", 2376, false, arc},
      {"arc_challenge", 1.0, choice, both, "allenai/ai2_arc, ARC-Challenge, test", 1172, false, arc},
      {"piqa", 1.0, choice, both, "baber/piqa, validation", 1838, false, piqa},
      {"hellaswag", 1.0, choice, both, "Rowan/hellaswag, validation", 10042, true, hellaswag},
      {"winogrande", 1.0, choice, acc, "allenai/winogrande, winogrande_xl, validation", 1267, false,
       winogrande},
      {"openbookqa", 1.0, choice, both, "allenai/openbookqa, main, test", 500, false, openbookqa},
      {"boolq", 2.0, choice, acc, "aps/super_glue, boolq, validation", 3270, false, boolq},
      {"copa", 1.0, choice, acc, "aps/super_glue, copa, validation", 100, true, copa},
      {"sciq", 1.0, choice, both, "allenai/sciq, test", 1000, false, sciq},
      {"social_iqa", 0.0, choice, acc, "lighteval/siqa, validation", 1954, false, social_iqa},
  };
}

}  // namespace kata::harness
