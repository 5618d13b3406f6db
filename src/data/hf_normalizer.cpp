#include "data/hf_normalizer.h"

#include <memory>

#include "data/text_pattern.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace kata {

namespace {

void strip_left(Section& section) {
  size_t at = 0;
  while (at < section.text.size()) {
    const CodePoint point = code_point_at(section.text, at);
    if (!is_white_space(point.value)) break;
    at += point.bytes;
  }
  if (at > 0) section.first = false;
  section.text.erase(0, at);
}

void strip_right(Section& section) {
  size_t end = section.text.size();
  while (end > 0) {
    const size_t before = previous_character(section.text, end);
    if (!is_white_space(code_point_at(section.text, before).value)) break;
    end = before;
  }
  section.text.resize(end);
}

void strip_accents(Section& section) {
  std::string kept;
  for (size_t at = 0; at < section.text.size();) {
    const CodePoint point = code_point_at(section.text, at);
    if (!is_mark(point.value))
      kept += section.text.substr(at, point.bytes);
    else if (at == 0)
      section.first = false;
    at += point.bytes;
  }
  section.text = std::move(kept);
}

}  // namespace

void check_growth(size_t before, size_t now) {
  if (now > most_growth * before + growth_for_all)
    fail(ExitCode::data, "the tokenizer makes more than {} bytes of {} bytes of text; its file is damaged",
         now, before);
}

void check_steps(size_t steps, const JsonView& value) {
  constexpr size_t most = 64;
  if (steps >= most) value.refuse(fmt::format("more than {} steps in a sequence", most));
}

HfNormalizer::HfNormalizer(const JsonView& value) {
  if (!value.is_null()) add(value);
}

void HfNormalizer::apply(Section& section) const {
  const size_t size = section.text.size();
  for (const auto& step : steps_) {
    step(section);
    check_growth(size, section.text.size());
  }
}

void HfNormalizer::add(const JsonView& value) {
  check_steps(steps_.size(), value);
  enum Kind { nfc, nfd, nfkc, nfkd, lowercase, replace, prepend, strip, accents, sequence };
  const auto kind =
      static_cast<Kind>(value.at("type").choice({"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Replace",
                                                 "Prepend", "Strip", "StripAccents", "Sequence"}));
  switch (kind) {
    case nfc:
    case nfd:
    case nfkc:
    case nfkd: {
      value.only({"type"});
      const auto form = static_cast<NormalForm>(kind);
      steps_.push_back([form](Section& section) { section.text = normal_form(section.text, form); });
      break;
    }
    case lowercase:
      value.only({"type"});
      steps_.push_back([](Section& section) { section.text = lower_case(section.text); });
      break;
    case accents:
      value.only({"type"});
      steps_.push_back(strip_accents);
      break;
    case prepend:
      value.only({"type", "prepend"});
      steps_.push_back([text = value.at("prepend").short_string()](Section& section) {
        if (!section.text.empty()) section.text.insert(0, text);
      });
      break;
    case replace:
      add_replace(value);
      break;
    case strip:
      add_strip(value);
      break;
    case sequence: {
      value.only({"type", "normalizers"});
      const JsonView list = value.at("normalizers");
      for (size_t i = 0; i < list.size(); ++i) add(list.at(i));
      break;
    }
  }
}

void HfNormalizer::add_replace(const JsonView& value) {
  value.only({"type", "pattern", "content"});
  const auto pattern = std::make_shared<const TextPattern>(TextPattern::read(value.at("pattern")));
  const std::string content = value.at("content").short_string();
  steps_.push_back([pattern, content](Section& section) {
    if (section.first && content.empty() && !section.text.empty())
      pattern->parts(section.text, {{0, section.text.size()}}, [&](size_t, const std::vector<Part>& parts) {
        if (parts[0].match && parts[0].begin < parts[0].end) section.first = false;
      });
    section.text = pattern->replace(section.text, content, check_growth);
  });
}

void HfNormalizer::add_strip(const JsonView& value) {
  value.only({"type", "strip_left", "strip_right"});
  if (value.at("strip_left").boolean()) steps_.push_back(strip_left);
  if (value.at("strip_right").boolean()) steps_.push_back(strip_right);
}

}  // namespace kata
