// Rows of documents (ops/documents.h) for the tests of ops that know them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace kata::test {

// starts [batch, time]; lengths: of the documents in the first row, and each later row has them turned by
// one.
inline std::vector<int32_t> starts_of_rows(int64_t batch, int64_t time, std::vector<int64_t> lengths) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < batch; ++b) {
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      starts.insert(starts.end(), static_cast<size_t>(length), static_cast<int32_t>(begin));
      begin += length;
    }
    KATA_CHECK(begin == time, "documents of {} tokens, {} wanted", begin, time);
    std::rotate(lengths.begin(), lengths.begin() + 1, lengths.end());
  }
  return starts;
}

// body(begin, end) for every document, in rows of [batch * time].
template <class Body>
void for_each_document(const std::vector<int32_t>& starts, int64_t time, Body&& body) {
  const auto rows = static_cast<int64_t>(starts.size());
  for (int64_t begin = 0, end; begin < rows; begin = end) {
    for (end = begin + 1; end % time != 0; ++end)
      if (starts[static_cast<size_t>(end)] == end % time) break;
    body(begin, end);
  }
}

}  // namespace kata::test
