#include "config/schema.h"

#include <algorithm>

#include "base/error.h"

namespace kata {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that turn a into b.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& names) {
  constexpr size_t longest_word = 64;  // beyond that nothing is near
  std::string best;
  size_t best_distance = 0;
  if (word.size() > longest_word) return best;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word, name);
    const size_t allowed = std::max<size_t>(1, std::min(word.size(), name.size()) / 3);
    if (distance <= allowed && (best.empty() || distance < best_distance)) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) {
    if (!all.empty()) all += ", ";
    all += name;
  }
  return all;
}

template <class T>
std::string Range<T>::text() const {
  const std::string zero = or_zero ? "0, or " : "";
  if (high == unbounded<T>) {
    if (low_open) return fmt::format("{}above {}", zero, low);
    return fmt::format("{}{} or more", zero, low);
  }
  return fmt::format("{}{}{} to {}{}", zero, low_open ? "above " : "", low, high_open ? "below " : "", high);
}

template struct Range<int64_t>;
template struct Range<uint64_t>;
template struct Range<double>;

}  // namespace kata
