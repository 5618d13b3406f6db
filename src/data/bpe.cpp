#include "data/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "data/inspect.h"
#include "data/utf8.h"

namespace kata {

namespace {

constexpr char32_t table_end = 0x800;  // code points below have their piece in a table
constexpr size_t longest_short = 48;   // pieces of a word that is merged by looking through it
constexpr int32_t none = -1;

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Whether U+2581 stands behind another character somewhere in the piece.
bool holds_inner_blank(std::string_view piece) {
  for (size_t at = piece.find(Bpe::blank, 1); at != std::string_view::npos;
       at = piece.find(Bpe::blank, at + 1))
    if (!piece.substr(0, at).ends_with(Bpe::blank)) return true;
  return false;
}

}  // namespace

// ---- the rules ----

void Bpe::Rules::build(const std::vector<BpeModel::Merge>& merges) {
  slots_.assign(std::bit_ceil(merges.size() * 2 + 2), {});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeModel::Merge& merge = merges[rank];
    Slot& slot = slots_[place(pair_of(merge.left, merge.right))];
    slot = {pair_of(merge.left, merge.right), {static_cast<uint32_t>(rank), merge.result}};
  }
}

size_t Bpe::Rules::place(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t at = (pair * 0x9E3779B97F4A7C15u) >> 20 & mask;
  while (slots_[at].pair != pair && slots_[at].pair != UINT64_MAX) at = (at + 1) & mask;
  return at;
}

Bpe::Rule Bpe::Rules::find(int32_t left, int32_t right) const {
  return slots_[place(pair_of(left, right))].rule;
}

Bpe::Bpe(BpeModel model, std::string name) : model_(std::move(model)), name_(std::move(name)) {
  rules_.build(model_.merges);
  for (char32_t c = 0; c < table_end; ++c) {
    std::string text;
    append_code_point(text, c);
    characters_.push_back(find_piece(text));
  }
  for (int byte = 0; byte < 256; ++byte) bytes_.push_back(find_piece(fmt::format("<0x{:02X}>", byte)));

  cuts_at_blanks_ = model_.prefix.empty() && model_.suffix.empty() && is_piece(blank);
  std::vector<bool> merged;
  for (const BpeModel::Merge& merge : model_.merges) {
    merged.resize(std::max(merged.size(), static_cast<size_t>(merge.result) + 1));
    merged[static_cast<size_t>(merge.result)] = true;
  }
  for (const auto& [piece, id] : model_.pieces)
    if (static_cast<size_t>(id) < merged.size() && merged[static_cast<size_t>(id)] &&
        holds_inner_blank(piece))
      cuts_at_blanks_ = false;
}

// ---- a word as single characters ----

int32_t Bpe::find_piece(std::string_view text) const {
  const auto it = model_.pieces.find(text);
  return it == model_.pieces.end() ? none : it->second;
}

int32_t Bpe::unknown_id(std::string_view character) const {
  const int32_t id = find_piece(*model_.unknown);
  if (id == none)
    fail(ExitCode::data, "{}: the text holds {}, which has no piece, and unk_token {} is no piece either",
         name_, quoted_line(character), quoted_line(*model_.unknown));
  return id;
}

bool Bpe::spell_in_bytes(std::string_view character, std::vector<int32_t>& ids) const {
  const auto id = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (!std::all_of(character.begin(), character.end(), [&](char byte) { return id(byte) != none; }))
    return false;
  for (const char byte : character) ids.push_back(id(byte));
  return true;
}

void Bpe::start(std::string_view word, std::vector<int32_t>& ids) const {
  const bool plain = model_.prefix.empty() && model_.suffix.empty();
  int32_t pending = none;  // an unknown piece that may grow
  std::string changed;
  for (size_t at = 0; at < word.size();) {
    const CodePoint point = code_point_at(word, at);
    std::string_view character = word.substr(at, point.bytes);
    if (!plain) {
      changed = (at > 0 ? model_.prefix : "") + std::string(character);
      if (at + point.bytes == word.size()) changed += model_.suffix;
      character = changed;
    }
    at += point.bytes;
    const int32_t id = plain && point.value < table_end ? characters_[point.value] : find_piece(character);
    if (id != none) {
      if (pending != none) ids.push_back(pending);
      pending = none;
      ids.push_back(id);
    } else if (model_.byte_fallback && spell_in_bytes(character, ids)) {
      continue;  // a pending unknown piece stays pending, as in the tokenizers library
    } else if (model_.unknown) {
      if (pending != none && !model_.fuse_unknown) ids.push_back(pending);
      pending = unknown_id(character);
    }
  }
  if (pending != none) ids.push_back(pending);
}

// ---- merges ----

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  if (model_.ignore_merges)
    if (const int32_t id = find_piece(word); id != none) return ids.push_back(id);
  const size_t before = ids.size();
  start(word, ids);
  const size_t count = ids.size() - before;
  const size_t left = count <= longest_short ? merge_short(ids.data() + before, count)
                                             : merge_long(ids.data() + before, count);
  ids.resize(before + left);
}

// Returns how many pieces are left, as does merge_long.
size_t Bpe::merge_short(int32_t* ids, size_t count) const {
  if (count < 2) return count;
  std::array<Rule, longest_short> rules;  // of piece i and the next
  for (size_t i = 0; i + 1 < count; ++i) rules[i] = rules_.find(ids[i], ids[i + 1]);
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (rules[i].rank < rules[best].rank) best = i;
    if (count < 2 || rules[best].rank == no_rank) return count;
    ids[best] = rules[best].result;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      rules[i] = rules[i + 1];
    }
    --count;
    if (best > 0) rules[best - 1] = rules_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) rules[best] = rules_.find(ids[best], ids[best + 1]);
  }
}

size_t Bpe::merge_long(int32_t* ids, size_t count) const {
  constexpr size_t end = SIZE_MAX;
  std::vector<size_t> next(count), previous(count);
  std::vector<uint32_t> ranks(count, no_rank);  // of piece i and its next
  using Entry = std::pair<uint32_t, size_t>;    // rank, place
  std::vector<Entry> entries;
  for (size_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : end;
    previous[i] = i > 0 ? i - 1 : end;
    if (i + 1 < count) ranks[i] = rules_.find(ids[i], ids[i + 1]).rank;
    if (ranks[i] != no_rank) entries.push_back({ranks[i], i});
  }
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue(std::greater<>(), std::move(entries));
  const auto renew = [&](size_t i) {
    ranks[i] = next[i] == end ? no_rank : rules_.find(ids[i], ids[next[i]]).rank;
    if (ranks[i] != no_rank) queue.push({ranks[i], i});
  };
  while (!queue.empty()) {
    const auto [rank, i] = queue.top();
    queue.pop();
    if (ranks[i] != rank) continue;  // one of the two has changed since
    const size_t gone = next[i];
    ids[i] = rules_.find(ids[i], ids[gone]).result;
    ranks[gone] = no_rank;
    next[i] = next[gone];
    if (next[i] != end) previous[next[i]] = i;
    renew(i);
    if (previous[i] != end) renew(previous[i]);
  }
  size_t left = 0;
  for (size_t i = 0; i != end; i = next[i]) ids[left++] = ids[i];
  return left;
}

}  // namespace kata
