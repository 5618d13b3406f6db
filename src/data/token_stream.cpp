#include "data/token_stream.h"

#include <algorithm>

namespace kata {

TokenStream::TokenStream(const std::vector<std::string>& paths, int64_t vocab) : vocab_(vocab) {
  KATA_CHECK(vocab > 0 && vocab <= int64_t{1} << 31, "vocab = {}", vocab);
  if (paths.empty())
    fail(ExitCode::usage, "no token shards; name at least one file made by katadata tokenize");
  shards_.reserve(paths.size());
  first_.push_back(0);
  for (const std::string& path : paths) {
    shards_.emplace_back(path);
    shards_.back().check_ids(vocab);
    first_.push_back(first_.back() + shards_.back().tokens());
  }
}

std::string TokenStream::description() const {
  const size_t more = shards_.size() - 1;
  if (more == 0) return shards_[0].path();
  return fmt::format("{} and {} more file{}", shards_[0].path(), more, more == 1 ? "" : "s");
}

void TokenStream::read(int64_t begin, int64_t count, int32_t* out) const {
  KATA_CHECK(begin >= 0 && count >= 0 && begin <= tokens() - count, "{} tokens at {} of {}", count, begin,
             tokens());
  auto shard =
      static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), begin) - first_.begin()) - 1;
  for (; count > 0; ++shard) {
    const int64_t part = std::min(count, first_[shard + 1] - begin);
    shards_[shard].read(begin - first_[shard], part, out);
    int32_t largest = 0;
    for (int64_t i = 0; i < part; ++i) largest = std::max(largest, out[i]);
    if (largest >= vocab_) shards_[shard].check_ids(vocab_);
    begin += part;
    out += part;
    count -= part;
  }
}

}  // namespace kata
