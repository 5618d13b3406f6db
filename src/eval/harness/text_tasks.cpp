// Tasks that score running text: the last word of a passage, and whole pages.
#include "eval/harness/python_text.h"
#include "eval/harness/task.h"

namespace kata::harness {

namespace {

// Fields of a split on single blanks: all but the last are the context, joined as they were.
Item lambada(const Document& document, const Compat&) {
  const std::string& text = document.text("text");
  const size_t blank = text.rfind(' ');
  Item item;
  item.document = document.object();
  const bool one = blank == std::string::npos;
  item.target = " " + (one ? text : text.substr(blank + 1));
  item.requests.push_back({RequestKind::loglikelihood, one ? "" : text.substr(0, blank), item.target});
  return item;
}

Item wikitext(const Document& document, const Compat&) {
  const std::string& page = document.text("page");
  Item item;
  item.document = document.object();
  item.target = wikitext_detokenised(page);
  item.requests.push_back({RequestKind::rolling, "", item.target});
  item.words = space_fields(page);
  item.bytes = static_cast<int64_t>(page.size());
  return item;
}

// White space just inside a pair goes: from the opening character to the next closing one.
std::string trimmed_inside(std::string_view text, char open, char close) {
  std::string result;
  while (true) {
    const size_t begin = text.find(open);
    const size_t end = begin == std::string_view::npos ? begin : text.find(close, begin + 1);
    if (end == std::string_view::npos) return result.append(text);
    result.append(text.substr(0, begin + 1)).append(strip(text.substr(begin + 1, end - begin - 1)));
    result += close;
    text.remove_prefix(end + 1);
  }
}

std::string stripped_line(std::string_view line) {
  return std::string(strip(replace_all(replace_all(line, "= = =", "==="), "= =", "==")));
}

}  // namespace

std::string wikitext_detokenised(std::string_view page) {
  using Rule = std::pair<const char*, const char*>;
  constexpr Rule before[] = {{"s '", "s'"}, {" @-@ ", "-"}, {" @,@ ", ","}, {" @.@ ", "."}, {" : ", ": "},
                             {" ; ", "; "}, {" . ", ". "},  {" ! ", "! "},  {" ? ", "? "},  {" , ", ", "}};
  constexpr Rule after[] = {{"= = = =", "===="}, {"= = =", "==="}, {"= =", "=="},  {" \xc2\xb0 ", "\xc2\xb0"},
                            {" \n", "\n"},       {"\n ", "\n"},    {" N ", " 1 "}, {" 's", "'s"}};
  constexpr std::pair<char, char> pairs[] = {{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}};
  std::string text(page);
  for (const auto& [from, to] : before) text = replace_all(text, from, to);
  for (const auto& [open, close] : pairs) text = trimmed_inside(text, open, close);
  for (const auto& [from, to] : after) text = replace_all(text, from, to);
  return text;
}

std::vector<std::string> wikitext_pages(std::string_view raw) {
  std::vector<std::string> pages;
  std::string page;
  bool begun = false;
  const auto end_page = [&] {
    if (!strip(page).empty()) pages.push_back(page);
    page.clear();
    begun = false;
  };
  for (size_t at = 0; at <= raw.size();) {
    const size_t end = std::min(raw.find('\n', at), raw.size());
    const std::string_view line = raw.substr(at, end - at);
    const std::string title = stripped_line(line);
    if (title.starts_with("= ") && title.ends_with(" =")) end_page();
    if (begun) page += '\n';
    page += line;
    begun = true;
    at = end + 1;
  }
  end_page();
  return pages;
}

std::vector<Task> text_tasks() {
  const std::vector<std::string> word = {"perplexity", "acc"};
  const std::vector<std::string> page = {"word_perplexity", "byte_perplexity", "bits_per_byte"};
  return {
      {"lambada_openai", 1.0, Output::loglikelihood, word, "EleutherAI/lambada_openai, default, test", 5153,
       false, lambada},
      {"lambada_standard", 1.0, Output::loglikelihood, word, "cimec/lambada, test", 5153, false, lambada},
      {"wikitext", 2.0, Output::rolling, page, "EleutherAI/wikitext_document_level, wikitext-2-raw-v1, test",
       62, false, wikitext},
  };
}

}  // namespace kata::harness
