// Byte pair encoding: a word starts as single characters, and the pair of neighbours that stands first in the
// list of merges becomes one piece, until none of the list is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace kata {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using PieceIds = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

struct BpeModel {
  struct Merge {
    int32_t left = 0, right = 0, result = 0;
  };
  PieceIds pieces;
  std::vector<Merge> merges;           // first ones first; of equal pairs the last one counts
  std::optional<std::string> unknown;  // the piece for a character without one; it need not exist
  bool fuse_unknown = false;           // a run of such characters is one piece
  bool byte_fallback = false;          // they are spelt in the pieces <0x00> to <0xFF>, where those exist
  bool ignore_merges = false;          // a word that is a piece is not taken apart
  std::string prefix, suffix;          // of a character inside a word; of its last one
};

class Bpe {
 public:
  // `name` is what messages call it.
  Bpe(BpeModel model, std::string name);

  // Appends the ids of a word of valid UTF-8. Characters without a piece vanish where no unknown piece is
  // named. ExitCode::data where one is named, is needed, and does not exist.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  // A word that holds an inner `blank` (U+2581) may be cut before each one that follows another character:
  // no merge crosses such a place. Both parts together give what the whole gives.
  bool cuts_at_blanks() const { return cuts_at_blanks_; }
  bool is_piece(std::string_view word) const { return model_.pieces.contains(word); }
  const BpeModel& model() const { return model_; }

  static constexpr std::string_view blank = "\xe2\x96\x81";

 private:
  struct Rule {  // of a pair
    uint32_t rank = no_rank;
    int32_t result = 0;
  };
  static constexpr uint32_t no_rank = UINT32_MAX;
  // Open addressing: pairs lie where their hash says, or behind.
  class Rules {
   public:
    void build(const std::vector<BpeModel::Merge>& merges);
    Rule find(int32_t left, int32_t right) const;

   private:
    struct Slot {
      uint64_t pair = UINT64_MAX;
      Rule rule;
    };
    size_t place(uint64_t pair) const;
    std::vector<Slot> slots_;
  };

  int32_t find_piece(std::string_view text) const;  // -1: none
  int32_t unknown_id(std::string_view character) const;
  bool spell_in_bytes(std::string_view character, std::vector<int32_t>& ids) const;
  void start(std::string_view word, std::vector<int32_t>& ids) const;
  size_t merge_short(int32_t* ids, size_t count) const;
  size_t merge_long(int32_t* ids, size_t count) const;

  BpeModel model_;
  std::string name_;
  Rules rules_;
  std::vector<int32_t> characters_;  // the piece of a code point below its size, -1: none
  std::vector<int32_t> bytes_;       // of <0x00> to <0xFF>, -1: none
  bool cuts_at_blanks_ = false;
};

}  // namespace kata
