// Token embedding: rows of a table.
//
//   y_r = table[ids_r]          backward: dtable[ids_r] += dy_r, in the order of r
//
// Every id lies in [0, vocab): the data loader has checked it; an id outside is an internal error here and
// nothing is read or written out of bounds. The backward touches only the rows that occur.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct EmbeddingSize {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocab = 0;
};

namespace cpu {
template <class T>
void embedding_forward(T* y, const T* table, const int32_t* ids, const EmbeddingSize& size);
template <class T>
void embedding_backward(T* dtable, const T* dy, const int32_t* ids, const EmbeddingSize& size);
}  // namespace cpu

inline EmbeddingSize embedding_size(const char* op, const Tensor& y, const Tensor& table, const Tensor& ids) {
  KATA_CHECK(y.rank() == 2 && table.rank() == 2 && y.dim(1) == table.dim(1), "{}: rows {} and table {}", op,
             y.shape().str(), table.shape().str());
  require(op, "rows", y, y.shape(), table.dtype());
  require_contiguous(op, "table", table);
  require(op, "ids", ids, {y.dim(0)}, DType::i32);
  return {y.dim(0), y.dim(1), table.dim(0)};
}

// y: [rows, width]; table: [vocab, width]; ids: int32 [rows].
inline void embedding_forward(Context& ctx, const Tensor& y, const Tensor& table, const Tensor& ids) {
  const EmbeddingSize size = embedding_size("embedding", y, table, ids);
  if (ctx.planning()) return;
  dispatch_float(y.dtype(), [&]<class T>() {
    cpu::embedding_forward<T>(y.as<T>(), table.as<T>(), ids.as<int32_t>(), size);
  });
}

// dtable: [vocab, width], added to; dy: [rows, width].
inline void embedding_backward(Context& ctx, const Tensor& dtable, const Tensor& dy, const Tensor& ids) {
  const EmbeddingSize size = embedding_size("embedding_backward", dy, dtable, ids);
  if (ctx.planning()) return;
  dispatch_float(dy.dtype(), [&]<class T>() {
    cpu::embedding_backward<T>(dtable.as<T>(), dy.as<T>(), ids.as<int32_t>(), size);
  });
}

}  // namespace kata
