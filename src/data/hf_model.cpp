#include "data/hf_model.h"

#include <unordered_map>

#include "data/inspect.h"

namespace kata {

namespace {

void read_vocab(const JsonView& value, PieceIds& pieces) {
  std::unordered_map<int32_t, std::string_view> owners;
  pieces.reserve(value.size_of_object());
  value.members([&](const std::string& piece, const JsonView& id_value) {
    const auto id = static_cast<int32_t>(id_value.integer(0, largest_piece_id));
    if (!owners.emplace(id, piece).second)
      id_value.refuse(fmt::format("id {} belongs to the piece {} too", id, quoted_line(owners[id])));
    pieces.emplace(piece, id);
  });
  if (pieces.empty()) value.refuse("no pieces");
}

// "a b", or ["a", "b"] where a piece may hold a blank.
std::pair<std::string, std::string> read_pair(const JsonView& value) {
  if (value.is_array()) {
    if (value.size() != 2) value.refuse(fmt::format("{} strings, expected 2", value.size()));
    return {value.at(0).string(), value.at(1).string()};
  }
  if (!value.is_string()) value.refuse("expected a string \"a b\" or an array of two strings");
  const std::string& text = value.string();
  const size_t blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
    value.refuse("expected two pieces with one blank between them");
  return {text.substr(0, blank), text.substr(blank + 1)};
}

void read_merges(const JsonView& value, BpeModel& model) {
  model.merges.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const JsonView one = value.at(i);
    const auto [left, right] = read_pair(one);
    const auto id = [&](const std::string& piece) {
      const auto it = model.pieces.find(piece);
      if (it == model.pieces.end())
        one.refuse(fmt::format("{} is no piece of model.vocab", quoted_line(piece)));
      return it->second;
    };
    if (right.size() < model.prefix.size())
      one.refuse("its second piece is shorter than continuing_subword_prefix");
    const int32_t first = id(left), second = id(right);
    model.merges.push_back({first, second, id(left + right.substr(model.prefix.size()))});
  }
}

std::string text_or_null(const JsonView& value, const std::string& key) {
  const auto found = value.find(key);
  return found && !found->is_null() ? found->short_string() : "";
}

}  // namespace

BpeModel read_bpe_model(const JsonView& value) {
  // The oldest files do not name the type.
  if (const auto type = value.find("type"); type && type->string() != "BPE")
    type->refuse(
        fmt::format("models of type {} are not read, only BPE is", quoted_line(type->short_string())));
  value.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  BpeModel model;
  if (const auto dropout = value.find("dropout"); dropout && !dropout->is_null() && dropout->number() != 0)
    dropout->refuse("dropout makes tokens at random; expected null");
  if (const auto unknown = value.find("unk_token"); unknown && !unknown->is_null())
    model.unknown = unknown->short_string();
  model.prefix = text_or_null(value, "continuing_subword_prefix");
  model.suffix = text_or_null(value, "end_of_word_suffix");
  model.fuse_unknown = value.boolean("fuse_unk", false);
  model.byte_fallback = value.boolean("byte_fallback", false);
  model.ignore_merges = value.boolean("ignore_merges", false);
  read_vocab(value.at("vocab"), model.pieces);
  read_merges(value.at("merges"), model);
  return model;
}

}  // namespace kata
