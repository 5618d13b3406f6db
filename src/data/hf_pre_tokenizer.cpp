#include "data/hf_pre_tokenizer.h"

#include "data/byte_level.h"
#include "data/hf_metaspace.h"
#include "data/utf8.h"

namespace kata {

namespace {

// Every word w becomes change(w, is it the first?).
template <class Change>
void rewrite(Words& words, Change&& change) {
  std::string text;
  text.reserve(words.text.size() + words.spans.size());
  for (Span& span : words.spans) {
    const std::string_view word = std::string_view(words.text).substr(span.begin, span.end - span.begin);
    const bool first = words.first && &span == words.spans.data();
    span.begin = text.size();
    change(text, word, first);
    span.end = text.size();
  }
  words.text = std::move(text);
}

void spell_bytes(Words& words) {
  rewrite(words, [](std::string& text, std::string_view word, bool) { text += to_byte_level(word); });
}

void prefix_blank(Words& words) {
  rewrite(words, [](std::string& text, std::string_view word, bool) {
    if (!word.starts_with(' ')) text += ' ';
    text += word;
  });
}

void cut_words(Words& words, const TextPattern& pattern, Cut cut, bool invert) {
  std::vector<Span> spans;
  const size_t begin = words.spans.empty() ? 0 : words.spans[0].begin;
  pattern.parts(words.text, words.spans, [&](size_t, std::vector<Part>& parts) {
    if (invert)
      for (Part& part : parts) part.match = !part.match;
    cut_parts(parts, cut, spans);
  });
  if (spans.empty() || spans[0].begin != begin) words.first = false;
  words.spans = std::move(spans);
}

}  // namespace

HfPreTokenizer::HfPreTokenizer(const JsonView& value) {
  if (!value.is_null()) add(value);
}

Words HfPreTokenizer::apply(Section section) const {
  Words words{std::move(section.text), {}, section.first};
  if (!words.text.empty()) words.spans.push_back({0, words.text.size()});
  const size_t size = words.text.size();
  for (const Step& step : steps_) {
    step(words);
    check_growth(size, words.text.size());
  }
  return words;
}

void HfPreTokenizer::add_cut(TextPattern pattern, Cut cut, bool invert) {
  const auto shared = std::make_shared<const TextPattern>(std::move(pattern));
  steps_.push_back([shared, cut, invert](Words& words) { cut_words(words, *shared, cut, invert); });
}

void HfPreTokenizer::add(const JsonView& value) {
  check_steps(steps_.size(), value);
  enum Kind { byte_level, split, metaspace, digits, whitespace, whitespace_split, punctuation, sequence };
  const auto kind =
      static_cast<Kind>(value.at("type").choice({"ByteLevel", "Split", "Metaspace", "Digits", "Whitespace",
                                                 "WhitespaceSplit", "Punctuation", "Sequence"}));
  if (byte_level_ && kind != sequence) {  // what follows sees the spelling
    steps_.push_back(spell_bytes);
    byte_level_ = false;
  }
  switch (kind) {
    case byte_level:
      add_byte_level(value);
      break;
    case split:
      add_split(value);
      break;
    case metaspace:
      add_metaspace(value);
      break;
    case digits:
      value.only({"type", "individual_digits"});
      add_cut(TextPattern::character(is_number),
              value.at("individual_digits").boolean() ? Cut::isolated : Cut::contiguous);
      break;
    case whitespace:
      value.only({"type"});
      add_cut(TextPattern::regex(R"(\w+|[^\w\s]+)", value.where()), Cut::removed, true);
      break;
    case whitespace_split:
      value.only({"type"});
      add_cut(TextPattern::character(is_white_space), Cut::removed);
      break;
    case punctuation: {
      value.only({"type", "behavior"});
      const auto cut = value.find("behavior");
      add_cut(TextPattern::character(is_punctuation), cut ? read_cut(*cut) : Cut::isolated);
      break;
    }
    case sequence: {
      value.only({"type", "pretokenizers"});
      const JsonView list = value.at("pretokenizers");
      for (size_t i = 0; i < list.size(); ++i) add(list.at(i));
      break;
    }
  }
}

void HfPreTokenizer::add_byte_level(const JsonView& value) {
  value.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  value.boolean("trim_offsets", true);  // about positions in the text, which nobody asks for here
  if (value.at("add_prefix_space").boolean()) steps_.push_back(prefix_blank);
  if (value.boolean("use_regex", true))
    add_cut(TextPattern::words(*WordScanner::of(WordScanner::gpt2)), Cut::isolated);
  byte_level_ = true;
}

void HfPreTokenizer::add_split(const JsonView& value) {
  value.only({"type", "pattern", "behavior", "invert"});
  add_cut(TextPattern::read(value.at("pattern")), read_cut(value.at("behavior")),
          value.boolean("invert", false));
}

void HfPreTokenizer::add_metaspace(const JsonView& value) {
  const Metaspace space = read_metaspace(value);
  steps_.push_back([space](Words& words) {
    rewrite(words, [&](std::string& text, std::string_view word, bool first) {
      const bool wanted = space.prepend == Metaspace::always || (space.prepend == Metaspace::first && first);
      if (wanted && !word.starts_with(' ') && !word.starts_with(space.replacement)) text += space.replacement;
      for (const char c : word)
        if (c == ' ')
          text += space.replacement;
        else
          text += c;
    });
  });
  if (space.split) add_cut(TextPattern::literal(space.replacement), Cut::merged_with_next);
}

}  // namespace kata
