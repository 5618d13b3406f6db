// Documents inside a row: which earlier tokens a token sees.
//
//   starts [batch, time], int32: starts[b,t] <= t is the first token of the document that t belongs to
//
// Token t sees the tokens s with starts[b,t] <= s <= t. starts[b,t] = t: t is the first of its document, and
// what was carried from before is dropped. A negative value: the document began that many tokens before this
// call's first one, so what was carried in still counts. Undefined: every row is one document from 0 on.
// t - starts[b,t] is the position in the document. Along t the values never fall.
#pragma once

#include <cstdint>

#include "ops/dispatch.h"

namespace kata {

struct Starts {
  const int32_t* data = nullptr;  // null: one document a row
  int64_t time = 0;

  int64_t at(int64_t b, int64_t t) const { return data == nullptr ? 0 : data[b * time + t]; }
  bool is_start(int64_t b, int64_t t) const { return data != nullptr && data[b * time + t] == t; }
};

inline Starts starts_of(const char* op, const Tensor& starts, int64_t batch, int64_t time) {
  if (!starts.defined()) return {};
  require(op, "starts", starts, {batch, time}, DType::i32);
  return {starts.as<int32_t>(), time};
}

}  // namespace kata
