// Documents inside a row of tokens, as the ops that look back in time see them.
//
// starts: int32 [batch, time], contiguous; starts[b, t] <= t is the index of the first token of the document
// that token t belongs to. Documents are runs of tokens, so starts does not fall along t. Token t sees the
// tokens s with starts[b, t] <= s <= t and nothing else, and its position in its document is
// t - starts[b, t].
//
//   starts[b, t] == t   t is the first token of a document: all that was carried up to it is dropped
//   starts[b, t] < 0    the document began -starts[b, t] tokens before the first token of this call (the same
//                       value for all of its tokens here), so what was carried in (convolution window, key
//                       cache, state) still counts
//   undefined tensor    every row is one document, which starts at 0 or goes on from what was carried in
//
// Who makes the tensor checks its values: launchers take the contract for granted.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct Starts {
  const int32_t* data = nullptr;  // [batch, time], or null: one document a row
  int64_t time = 0;

  constexpr bool given() const { return data != nullptr; }
  constexpr int64_t at(int64_t b, int64_t t) const { return data == nullptr ? 0 : data[b * time + t]; }
  // False where nothing is given: a call continues what was carried in.
  constexpr bool is_start(int64_t b, int64_t t) const { return given() && at(b, t) == t; }
};

inline void require_starts(const char* op, const Tensor& starts, int64_t batch, int64_t time) {
  if (starts.defined()) require(op, "starts", starts, {batch, time}, DType::i32);
}

// starts: checked, or undefined.
inline Starts starts_of(const Tensor& starts) {
  if (!starts.defined()) return {};
  return {starts.as<int32_t>(), starts.dim(1)};
}

}  // namespace kata
