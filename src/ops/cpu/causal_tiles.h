// Tiles of the causal triangle, shared by linear and softmax attention: how rows, scratch and work are cut.
//
// Everything here depends on the shape alone, so that no result depends on the thread count.
#pragma once

#include <algorithm>

#include "base/parallel.h"
#include "ops/token_heads.h"

namespace kata::cpu {

// A matrix of scores is kept transposed, [keys][query_tile]: then all products of a tile are of the kinds N N
// and T N, which OpenBLAS runs at its peak without packing while m n k stays below 10^6 (128 keys at d = 64),
// and what is done per query is a vector operation over the 64 columns.
inline constexpr int64_t query_tile = 64;
inline constexpr int64_t key_block = 128;
// On the diagonal a block has this many keys, and the queries before its first key are left out.
inline constexpr int64_t diagonal_block = 16;

// `keys` keys from `key` on, and the queries of the tile, counted from its first, that see any of them. On
// the diagonal, key i of the block is the position of query i, so it is seen from there on.
struct KeyBlock {
  int64_t key, keys;
  int64_t query, queries;
  bool diagonal;
};

// body(block) for the keys [first_key, end) of the tile of queries [begin, end).
template <class Body>
void for_each_key_block(int64_t begin, int64_t end, int64_t first_key, Body&& body) {
  for (int64_t s = first_key; s < begin; s += key_block)
    body(KeyBlock{s, std::min(key_block, begin - s), 0, end - begin, false});
  for (int64_t s = begin; s < end; s += diagonal_block)
    body(KeyBlock{s, std::min(diagonal_block, end - s), s - begin, end - s, true});
}

// Sets to 0 what the queries of a block do not see.
template <class T>
void zero_hidden(T* a, const KeyBlock& block) {
  if (!block.diagonal) return;
  for (int64_t i = 1; i < block.keys; ++i) std::fill_n(a + i * query_tile, i, T(0));
}

// The rows of one head: row t is at data + t * stride.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  T* at(int64_t t) const { return data + t * stride; }
  Rows from(int64_t t) const { return {at(t), stride}; }
};

template <class T>
Rows<T> head_rows(const TokenHeads<T>& x, int64_t b, int64_t h) {
  return {x.at(b, 0, h), x.token};
}

template <class T>
void zero_rows(const Rows<T>& x, int64_t begin, int64_t end, int64_t width) {
  for (int64_t t = begin; t < end; ++t) std::fill_n(x.at(t), width, T(0));
}

// Scratch cut into slices of whole cache lines. With a null base it only counts, so that the same code plans.
template <class T>
class Slices {
 public:
  explicit Slices(T* base) : base_(base) {}
  T* take(int64_t n) {
    T* slice = base_ == nullptr ? nullptr : base_ + used_;
    used_ += ceil_div(n, 16) * 16;
    return slice;
  }
  int64_t used() const { return used_; }

 private:
  T* base_;
  int64_t used_ = 0;
};

// out [width][stride] = the rows x [n, width], transposed and scaled.
template <class T>
void transpose_rows(T* out, int64_t stride, const Rows<const T>& x, int64_t n, int64_t width, T scale) {
  for (int64_t j = 0; j < width; ++j)
#pragma omp simd
    for (int64_t t = 0; t < n; ++t) out[j * stride + t] = scale * x.data[t * x.stride + j];
}

// Backward over all tiles. A (batch row, key head) is cut into segments of query tiles when there are few of
// them; each segment adds its dk and dv into rows of its own, which are then summed in the order of segments.
inline int64_t backward_segments(const AttentionSize& size) {
  const int64_t heads = size.batch * size.kv_heads, tiles = ceil_div(size.tokens, query_tile);
  return std::max<int64_t>(1, std::min(tiles, 16 / std::max<int64_t>(heads, 1)));
}
inline int64_t backward_partials(const AttentionSize& size) {  // elements
  const int64_t segments = backward_segments(size);
  if (segments == 1) return 0;
  return size.batch * size.kv_heads * segments * size.tokens * (size.width + size.value_width);
}

namespace detail {

// x = sum of the segments' rows [begin, end)
template <class T>
void sum_segments(const Rows<T>& x, const T* partial, int64_t segments, int64_t segment_stride, int64_t width,
                  int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    T* row = x.at(t);
    std::copy_n(partial + t * width, width, row);
    for (int64_t s = 1; s < segments; ++s) {
      const T* part = partial + s * segment_stride + t * width;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) row[j] += part[j];
    }
  }
}

}  // namespace detail

// tile(b, h, begin, end, dk, dv) adds what queries [begin, end) of head h contribute to the rows of dk and
// dv; finish(b, kv head, begin, end) is called once for every range of finished rows of dk and dv.
template <class T, class Tile, class Finish>
void backward_over_tiles(const TokenHeads<T>& dk, const TokenHeads<T>& dv, T* partials,
                         const AttentionSize& size, Tile&& tile, Finish&& finish) {
  const int64_t segments = backward_segments(size), tokens = size.tokens;
  const int64_t segment_stride = tokens * (size.width + size.value_width);
  parallel_for(size.batch * size.kv_heads * segments, [&](int64_t unit) {
    const int64_t segment = unit % segments, pair = unit / segments;
    const int64_t b = pair / size.kv_heads, g = pair % size.kv_heads;
    T* partial = partials + unit * segment_stride;
    const Rows<T> dk_rows = segments == 1 ? head_rows(dk, b, g) : Rows<T>{partial, size.width};
    const Rows<T> dv_rows =
        segments == 1 ? head_rows(dv, b, g) : Rows<T>{partial + tokens * size.width, size.value_width};
    zero_rows(dk_rows, 0, tokens, size.width);
    zero_rows(dv_rows, 0, tokens, size.value_width);
    for (int64_t h = g * size.group(); h < (g + 1) * size.group(); ++h)
      for (int64_t t = segment * query_tile; t < tokens; t += segments * query_tile)
        tile(b, h, t, std::min(t + query_tile, tokens), dk_rows, dv_rows);
    if (segments == 1) finish(b, g, 0, tokens);
  });
  if (segments == 1) return;
  const int64_t blocks = ceil_div(tokens, key_block);
  parallel_for(size.batch * size.kv_heads * blocks, [&](int64_t unit) {
    const int64_t pair = unit / blocks, begin = unit % blocks * key_block;
    const int64_t end = std::min(begin + key_block, tokens);
    const int64_t b = pair / size.kv_heads, g = pair % size.kv_heads;
    const T* partial = partials + pair * segments * segment_stride;
    detail::sum_segments(head_rows(dk, b, g), partial, segments, segment_stride, size.width, begin, end);
    detail::sum_segments(head_rows(dv, b, g), partial + tokens * size.width, segments, segment_stride,
                         size.value_width, begin, end);
    finish(b, g, begin, end);
  });
}

}  // namespace kata::cpu
