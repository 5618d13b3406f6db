// A strided view [batch, token, head, width] as launchers see it: q, k, v and o inside fused buffers.
#pragma once

#include "ops/dispatch.h"

namespace kata {

template <class T>
struct TokenHeads {
  T* data = nullptr;
  int64_t batch = 0, token = 0, head = 0;  // strides in elements; the width itself is contiguous

  constexpr T* at(int64_t b, int64_t t, int64_t h) const { return data + b * batch + t * token + h * head; }
};

// x: [batch, token, head, width], or [batch, head, width] for one token.
template <class T>
TokenHeads<T> token_heads(const Tensor& x) {
  using Element = std::remove_const_t<T>;
  if (x.rank() == 3) return {x.as<Element>(), x.stride(0), 0, x.stride(1)};
  return {x.as<Element>(), x.stride(0), x.stride(1), x.stride(2)};
}

// Sizes of one attention call. Query head h reads key and value head h / (heads / kv_heads).
struct AttentionSize {
  int64_t batch = 0, tokens = 0;
  int64_t heads = 0, kv_heads = 0;  // of q and o; of k and v
  int64_t width = 0;                // of q and k
  int64_t value_width = 0;          // of v and o

  constexpr int64_t group() const { return heads / kv_heads; }
};

// q [B, T, Hq, d], k [B, T, Hkv, d], v [B, T, Hkv, dv], o [B, T, Hq, dv]; for one token without T.
inline AttentionSize attention_size(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& o) {
  const int rank = q.rank(), head = rank - 2, last = rank - 1;
  KATA_CHECK((rank == 3 || rank == 4) && k.rank() == rank && v.rank() == rank && o.rank() == rank,
             "{}: ranks of q {}, k {}, v {}, o {}", op, q.shape().str(), k.shape().str(), v.shape().str(),
             o.shape().str());
  const AttentionSize size = {q.dim(0),   rank == 4 ? q.dim(1) : 1, q.dim(head), k.dim(head), q.dim(last),
                              v.dim(last)};
  KATA_CHECK(size.heads > 0 && size.kv_heads > 0 && size.heads % size.kv_heads == 0 && size.width > 0 &&
                 size.value_width > 0,
             "{}: q {}, k {}, v {}", op, q.shape().str(), k.shape().str(), v.shape().str());
  const auto expect = [&](const char* name, const Tensor& x, int64_t heads, int64_t width) {
    const Shape shape =
        rank == 4 ? Shape{size.batch, size.tokens, heads, width} : Shape{size.batch, heads, width};
    require_shape(op, name, x, shape, q.dtype());
  };
  expect("k", k, size.kv_heads, size.width);
  expect("v", v, size.kv_heads, size.value_width);
  expect("o", o, size.heads, size.value_width);
  return size;
}

}  // namespace kata
