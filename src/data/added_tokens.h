// Tokens that a tokenizer.json finds in the text before anything else happens to it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/json_view.h"

namespace kata {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;                          // left out where ids become text
  bool single_word = false;                      // not inside a word
  bool left_strip = false, right_strip = false;  // takes the white space beside it
  bool normalized = false;                       // looked for in the normalised text
};

// The array added_tokens; ids up to `largest_id`, each once, as is each content.
std::vector<AddedToken> read_added_tokens(const JsonView& value, int32_t largest_id);

// Where tokens stand in a text: at each place the longest one, from left to right.
class TokenFinder {
 public:
  TokenFinder();
  // `content` is what is looked for; not empty.
  void add(const std::string& content, const AddedToken& token);

  // Calls token(id), and plain(begin, end) for the text between tokens, in order.
  void walk(std::string_view text, const std::function<void(int32_t)>& token,
            const std::function<void(size_t, size_t)>& plain) const;

 private:
  struct Node {
    int32_t token = -1;
    std::vector<std::pair<unsigned char, int32_t>> next;  // by byte
  };
  int32_t child(int32_t node, unsigned char byte) const;  // -1: none
  // The longest token at a place: its index and its end, or -1.
  std::pair<int32_t, size_t> match(std::string_view text, size_t at) const;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_;  // children of the root
  std::vector<AddedToken> tokens_;
};

}  // namespace kata
