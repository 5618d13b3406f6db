#include "data/hf_template.h"

#include <map>
#include <string>

#include "data/hf_normalizer.h"

namespace kata {

namespace {

constexpr size_t most_special_tokens = 256;  // around a text

using SpecialIds = std::map<std::string, std::vector<int32_t>>;

SpecialIds read_special_tokens(const JsonView& value, int64_t vocab) {
  SpecialIds specials;
  value.members([&](const std::string& name, const JsonView& token) {
    token.only({"id", "ids", "tokens"});
    if (token.at("id").string() != name) token.at("id").refuse("differs from the key above it");
    const JsonView ids = token.at("ids"), texts = token.at("tokens");
    if (ids.size() != texts.size())
      texts.refuse(fmt::format("{} tokens for {} ids", texts.size(), ids.size()));
    for (size_t i = 0; i < ids.size(); ++i) {
      texts.at(i).string();
      specials[name].push_back(static_cast<int32_t>(ids.at(i).integer(0, vocab - 1)));
    }
  });
  return specials;
}

// Calls text(which of the two) or special(name, value).
template <class Text, class Special>
void read_item(const JsonView& item, Text&& text, Special&& special) {
  item.only({"Sequence", "SpecialToken"});
  if (item.size_of_object() != 1) item.refuse("expected one of Sequence, SpecialToken");
  const auto sequence = item.find("Sequence");
  const JsonView value = sequence ? *sequence : item.at("SpecialToken");
  value.only({"id", "type_id"});
  value.at("type_id").integer(0, UINT32_MAX);
  if (sequence)
    text(value.at("id").choice({"A", "B"}), value);
  else
    special(value.at("id").string(), value);
}

}  // namespace

HfTemplate::HfTemplate(const JsonView& value, int64_t vocab) {
  if (!value.is_null()) add(value, vocab);
}

void HfTemplate::add(const JsonView& value, int64_t vocab) {
  check_steps(templates_.size(), value);
  switch (value.at("type").choice({"TemplateProcessing", "ByteLevel", "Sequence"})) {
    case 0:
      add_template(value, vocab);
      break;
    case 1:
      value.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) value.boolean(key, true);
      break;
    default: {
      value.only({"type", "processors"});
      const JsonView list = value.at("processors");
      for (size_t i = 0; i < list.size(); ++i) add(list.at(i), vocab);
    }
  }
}

void HfTemplate::add_template(const JsonView& value, int64_t vocab) {
  value.only({"type", "single", "pair", "special_tokens"});
  const SpecialIds specials = read_special_tokens(value.at("special_tokens"), vocab);
  const auto known = [&](const std::string& name, const JsonView& item) {
    const auto it = specials.find(name);
    if (it == specials.end()) item.at("id").refuse("not among special_tokens");
    return it->second;
  };
  std::vector<Item> items;
  const JsonView single = value.at("single"), pair = value.at("pair");
  size_t texts = 0;
  for (size_t i = 0; i < single.size(); ++i)
    read_item(
        single.at(i),
        [&](size_t which, const JsonView& item) {
          if (which != 0) item.at("id").refuse("B in the template of a single text, expected A");
          ++texts;
          items.push_back({true, {}});
        },
        [&](const std::string& name, const JsonView& item) {
          items.push_back({false, known(name, item)});
        });
  size_t specials_around = 0;
  for (const Item& item : items) specials_around += item.ids.size();
  if (specials_around > most_special_tokens)
    single.refuse(
        fmt::format("{} special tokens, at most {} are read", specials_around, most_special_tokens));
  if (texts != 1) single.refuse(fmt::format("the text (A) stands {} times, expected once", texts));
  for (size_t i = 0; i < pair.size(); ++i)  // nobody encodes pairs here, but a fault is a fault
    read_item(
        pair.at(i), [](size_t, const JsonView&) {}, known);
  templates_.push_back(std::move(items));
}

std::vector<int32_t> HfTemplate::apply(std::vector<int32_t> ids, bool add_special_tokens) const {
  if (!add_special_tokens) return ids;
  for (const auto& items : templates_) {
    std::vector<int32_t> result;
    for (const Item& item : items) {
      const std::vector<int32_t>& part = item.text ? ids : item.ids;
      result.insert(result.end(), part.begin(), part.end());
    }
    ids = std::move(result);
  }
  return ids;
}

int32_t HfTemplate::first_token() const {
  for (auto items = templates_.rbegin(); items != templates_.rend(); ++items) {
    const Item& first = items->front();
    if (!first.text && !first.ids.empty()) return first.ids.front();
  }
  return -1;
}

}  // namespace kata
