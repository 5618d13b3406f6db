#include "data/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "data/unicode.h"
#include "data/utf8.h"

namespace kata {

namespace {

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  const auto word_at = [&](size_t at) { return is_word_character(code_point_at(text, at).value); };
  return (begin > 0 && word_at(previous_character(text, begin))) || (end < text.size() && word_at(end));
}

// Where the white space that ends at `end` begins.
size_t blank_start(std::string_view text, size_t end) {
  while (end > 0) {
    const size_t before = previous_character(text, end);
    if (!is_white_space(code_point_at(text, before).value)) break;
    end = before;
  }
  return end;
}

size_t blank_end(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint point = code_point_at(text, begin);
    if (!is_white_space(point.value)) break;
    begin += point.bytes;
  }
  return begin;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonView& value, int32_t largest_id) {
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string> contents;
  std::unordered_set<int32_t> ids;
  for (size_t i = 0; i < value.size(); ++i) {
    const JsonView one = value.at(i);
    one.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.id = static_cast<int32_t>(one.at("id").integer(0, largest_id));
    token.content = one.at("content").string();
    token.special = one.at("special").boolean();
    token.single_word = one.at("single_word").boolean();
    token.left_strip = one.at("lstrip").boolean();
    token.right_strip = one.at("rstrip").boolean();
    token.normalized = one.at("normalized").boolean();
    if (token.content.empty()) one.at("content").refuse("an empty string, expected the token's text");
    if (!contents.insert(token.content).second) one.at("content").refuse("this token stands twice");
    if (!ids.insert(token.id).second)
      one.at("id").refuse(fmt::format("{} belongs to another added token", token.id));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenFinder::TokenFinder() : nodes_(1) {
  roots_.fill(-1);
}

int32_t TokenFinder::child(int32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  for (const auto& [key, next] : nodes_[static_cast<size_t>(node)].next)
    if (key == byte) return next;
  return -1;
}

void TokenFinder::add(const std::string& content, const AddedToken& token) {
  int32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      if (node == 0)
        roots_[byte] = next;
      else
        nodes_[static_cast<size_t>(node)].next.push_back({byte, next});
    }
    node = next;
  }
  int32_t& place = nodes_[static_cast<size_t>(node)].token;
  if (place >= 0) return;  // another one with the same normalised text came first
  place = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

std::pair<int32_t, size_t> TokenFinder::match(std::string_view text, size_t at) const {
  std::pair<int32_t, size_t> longest = {-1, at};
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = child(node, static_cast<unsigned char>(text[i]));
    if (node < 0) break;
    if (const int32_t token = nodes_[static_cast<size_t>(node)].token; token >= 0) longest = {token, i + 1};
  }
  return longest;
}

void TokenFinder::walk(std::string_view text, const std::function<void(int32_t)>& token,
                       const std::function<void(size_t, size_t)>& plain) const {
  size_t done = 0;
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const auto [index, match_end] = match(text, at);
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& found = tokens_[static_cast<size_t>(index)];
    size_t begin = at, end = match_end;
    at = match_end;  // the next one may begin in white space that this one takes
    if (found.single_word && is_inside_word(text, begin, end)) continue;
    if (found.left_strip) begin = std::max(blank_start(text, begin), done);
    if (found.right_strip) end = blank_end(text, end);
    if (done < begin) plain(done, begin);
    token(found.id);
    done = end;
  }
  if (done < text.size()) plain(done, text.size());
}

}  // namespace kata
