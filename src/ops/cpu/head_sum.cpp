#include "ops/head_sum.h"

#include <algorithm>

#include "base/parallel.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 64;  // rows per unit

}  // namespace

template <class T>
void head_sum(T* y, const T* x, const HeadSumSize& size) {
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* head = x + r * size.heads * size.width;
      T* sum = y + r * size.y_stride;
      std::copy_n(head, size.width, sum);
      for (int64_t h = 1; h < size.heads; ++h) {
        head += size.width;
#pragma omp simd
        for (int64_t j = 0; j < size.width; ++j) sum[j] += head[j];
      }
    }
  });
}

#define KATA_INSTANTIATE(T) template void head_sum<T>(T*, const T*, const HeadSumSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
