// Token embedding: rows of a table.
//
//   y_r = table[ids_r]          backward: dtable[ids_r] += dy_r, in the order of r
//
// Every id lies in [0, vocab): the data loader has checked it; an id outside is an internal error here and
// nothing is read or written out of bounds (on a GPU, which cannot say so, such a row is zeros). The backward
// touches only the rows that occur.
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

namespace cuda {
template <class T>
void embedding_forward(GpuStream stream, T* y, const T* table, const int32_t* ids, const EmbeddingSize& size);
// scratch: embedding_scratch int32 numbers.
template <class T>
void embedding_backward(GpuStream stream, Wide<T>* dtable, const T* dy, const int32_t* ids, int32_t* scratch,
                        const EmbeddingSize& size);
int64_t embedding_scratch(const EmbeddingSize& size);
}  // namespace cuda

// table_type: the table's, or its gradient's.
inline EmbeddingSize embedding_size(const char* op, const Tensor& y, const Tensor& table, const Tensor& ids,
                                    DType table_type) {
  KATA_CHECK(table.dtype() == table_type, "{}: table {} beside rows {}", op, name_of(table.dtype()),
             name_of(y.dtype()));
  KATA_CHECK(y.rank() == 2 && table.rank() == 2 && y.dim(1) == table.dim(1), "{}: rows {} and table {}", op,
             y.shape().str(), table.shape().str());
  require(op, "rows", y, y.shape(), y.dtype());
  require_contiguous(op, "table", table);
  require(op, "ids", ids, {y.dim(0)}, DType::i32);
  return {y.dim(0), y.dim(1), table.dim(0)};
}

// y: [rows, width]; table: [vocab, width]; ids: int32 [rows].
inline void embedding_forward(Context& ctx, const Tensor& y, const Tensor& table, const Tensor& ids) {
  const EmbeddingSize size = embedding_size("embedding", y, table, ids, y.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, y.dtype(),
      [&]<class T>() { cpu::embedding_forward<T>(y.as<T>(), table.as<T>(), ids.as<int32_t>(), size); },
      [&]<class T>() {
        cuda::embedding_forward<T>(ctx.stream(), y.as<T>(), table.as<T>(), ids.as<int32_t>(), size);
      });
}

// dtable: Wide [vocab, width], added to; dy: [rows, width].
inline void embedding_backward(Context& ctx, const Tensor& dtable, const Tensor& dy, const Tensor& ids) {
  const EmbeddingSize size = embedding_size("embedding_backward", dy, dtable, ids, wide(dy.dtype()));
  Arena::Scope scope(ctx.arena);
  Tensor scratch;
  by_device(
      ctx, [] {},
      [&] { scratch = ctx.arena.take("embedding ranks", DType::i32, {cuda::embedding_scratch(size)}); });
  if (ctx.planning()) return;
  dispatch(
      ctx, dy.dtype(),
      [&]<class T>() { cpu::embedding_backward<T>(dtable.as<T>(), dy.as<T>(), ids.as<int32_t>(), size); },
      [&]<class T>() {
        cuda::embedding_backward<T>(ctx.stream(), dtable.as<Wide<T>>(), dy.as<T>(), ids.as<int32_t>(),
                                    scratch.as<int32_t>(), size);
      });
}

}  // namespace kata
