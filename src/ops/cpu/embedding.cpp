#include "ops/embedding.h"

#include <algorithm>

#include "base/parallel.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;
constexpr int64_t block_columns = 32;  // two cache lines of floats: threads never share a line of dtable

inline int64_t checked(const int32_t* ids, int64_t r, const EmbeddingSize& size) {
  const int64_t id = ids[r];
  KATA_CHECK(id >= 0 && id < size.vocab, "embedding: ids[{}] = {}, vocabulary {}", r, id, size.vocab);
  return id;
}

}  // namespace

template <class T>
void embedding_forward(T* y, const T* table, const int32_t* ids, const EmbeddingSize& size) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::copy_n(table + checked(ids, r, size) * size.width, size.width, y + r * size.width);
  });
}

// A unit owns a few columns of the whole table and adds the rows in their order: no two units write the same
// element, so nothing is sorted and no partial tables are needed, however often an id repeats.
template <class T>
void embedding_backward(T* dtable, const T* dy, const int32_t* ids, const EmbeddingSize& size) {
  parallel_blocks(size.width, block_columns, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < size.rows; ++r) {
      T* to = dtable + checked(ids, r, size) * size.width;
      const T* from = dy + r * size.width;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) to[j] += from[j];
    }
  });
}

#define KATA_INSTANTIATE(T)                                                               \
  template void embedding_forward<T>(T*, const T*, const int32_t*, const EmbeddingSize&); \
  template void embedding_backward<T>(T*, const T*, const int32_t*, const EmbeddingSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
