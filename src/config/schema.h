// The vocabulary of the configuration tables.
//
// A config struct lists its keys once, in
//
//   template <class Visitor> void visit(Visitor& v) {
//     v.field("hidden", hidden, between(1, 65536), "width of the residual stream");
//     ...
//   }
//
// and everything that deals with keys walks that list: the parser (table_reader.h), the dump, the comparison
// and the reference of configs/README.md (table_writer.h). What a visitor offers:
//
//   v.reading                                    true for the parser: keys above are already read
//   v.field(key, value, rule, help)              int64_t, uint64_t, double, std::array<double, 2>,
//                                                std::vector<double>, std::string, std::vector<std::string>
//   v.field(key, flag, help)                     bool
//   v.required(key, value, rule, help)           the same for a key without a default
//   v.switched(key, inner, value, range, help)   std::optional<double>: `key: none` or `key: {inner: value}`
//   v.section(key, value, help)                  another struct with a table
//   v.optional_section(key, value, help)         std::optional of one
//   v.list(key, values, help)                    std::vector of them
//   v.one_or_list(key, values, help)             the same; a single map stands for a list of one
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace kata {

// The values that a number may take. Numbers are always finite.
template <class T>
struct Range {
  T low{};
  T high{};
  bool low_open = false;   // low itself is outside
  bool high_open = false;  // high itself is outside
  bool or_zero = false;    // 0 is allowed as well
  // The key may be left out: 0 then, which cannot be written, and the dump leaves the key out as well.
  bool may_be_absent = false;

  bool contains(T x) const {
    if (or_zero && x == T{}) return true;
    return (low_open ? x > low : x >= low) && (high_open ? x < high : x <= high);
  }
  std::string text() const;  // "1 to 8", "0, or 2 to 8", "above 0"
};

template <class T>
constexpr T unbounded = std::numeric_limits<T>::max();

inline Range<int64_t> between(int64_t low, int64_t high) {
  return {low, high};
}
inline Range<int64_t> at_least(int64_t low) {  // a count; products and sums of a few stay in 64 bits
  return {low, 1'000'000'000'000};
}
inline Range<int64_t> zero_or(int64_t low, int64_t high) {
  return {low, high, false, false, true};
}
inline Range<int64_t> none_or_between(int64_t low, int64_t high) {
  return {low, high, false, false, false, true};
}
inline Range<uint64_t> any_seed() {
  return {0, unbounded<uint64_t>};
}
inline Range<double> nonnegative() {
  return {0, unbounded<double>};
}
inline Range<double> positive() {
  return {0, unbounded<double>, true};
}
inline Range<double> below_one() {  // [0, 1)
  return {0, 1, false, true};
}
inline Range<double> up_to_one() {  // (0, 1]
  return {0, 1, true};
}
inline Range<double> zero_or_above(double low) {
  return {low, unbounded<double>, true, false, true};
}

inline bool is_absent(int64_t value, const Range<int64_t>& range) {
  return range.may_be_absent && value == 0;
}

// The values that a word may take; no names means any text.
struct Words {
  std::vector<std::string> names;
  bool may_be_empty = false;  // empty means "not given", and the dump leaves the key out
};

inline Words one_of(std::vector<std::string> names) {
  return {std::move(names), false};
}
inline Words none_or_one_of(std::vector<std::string> names) {
  return {std::move(names), true};
}
inline Words text() {
  return {};
}
inline Words text_or_none() {
  return {{}, true};
}

// The name nearest to `word` by edit distance, empty where none is near enough to be a slip of the finger.
std::string nearest_name(const std::string& word, const std::vector<std::string>& names);
std::string joined(const std::vector<std::string>& names);  // "a, b, c"

}  // namespace kata
