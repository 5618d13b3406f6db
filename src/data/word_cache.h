// The pieces of words that came before: texts repeat their words.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace kata {

// A table of fixed size (2 MiB). A word has one place, and drives out what stood there; long ones have none.
class WordCache {
 public:
  WordCache() : entries_(count) {}

  // Appends the ids of the word and returns true, or returns false.
  bool find(std::string_view word, std::vector<int32_t>& ids) const {
    if (word.size() > longest) return false;
    const Entry& entry = entries_[place(word)];
    if (entry.size != word.size() || std::memcmp(entry.word.data(), word.data(), word.size()) != 0)
      return false;
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.pieces);
    return true;
  }
  void store(std::string_view word, const int32_t* ids, size_t pieces) {
    if (word.empty() || word.size() > longest || pieces > most_pieces) return;
    Entry& entry = entries_[place(word)];
    std::memcpy(entry.word.data(), word.data(), word.size());
    for (size_t i = 0; i < pieces; ++i) entry.ids[i] = ids[i];
    entry.size = static_cast<uint8_t>(word.size());
    entry.pieces = static_cast<uint8_t>(pieces);
  }

 private:
  static constexpr size_t count = size_t{1} << 15, longest = 38, most_pieces = 6;
  struct Entry {
    std::array<int32_t, most_pieces> ids;
    std::array<char, longest> word;
    uint8_t size = 0, pieces = 0;  // size 0: empty
  };
  static size_t place(std::string_view word) { return std::hash<std::string_view>()(word) % count; }

  std::vector<Entry> entries_;
};

}  // namespace kata
