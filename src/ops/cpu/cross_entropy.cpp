#include "ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t tile_elements = int64_t{1} << 21;    // logits held at once
constexpr int64_t least_rows = 128, most_rows = 4096;  // below, the products lose speed; above, no gain
constexpr int64_t row_elements = 16384;                // logits per unit of the row passes
constexpr int64_t sum_block = 512;                     // logits summed in T before going to double
constexpr int64_t copy_rows = 256;

// What one row of logits says.
template <class T>
struct RowSum {
  T top;       // largest logit
  double sum;  // of exp(z - top)
};

// NaN logits do not win, but the sum is NaN then.
template <class T>
T largest(const T* z, int64_t n) {
  T top = z[0];
#pragma omp simd reduction(max : top)
  for (int64_t c = 0; c < n; ++c) top = top < z[c] ? z[c] : top;
  return top;
}

// Exponentials replace the logits where Keep.
template <bool Keep, class T>
RowSum<T> exponentials(std::conditional_t<Keep, T*, const T*> z, int64_t n) {
  const T top = largest<T>(z, n);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += sum_block) {
    const int64_t end = std::min(n, begin + sum_block);
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = begin; c < end; ++c) {
      const T e = fast_exp(z[c] - top);
      if constexpr (Keep) z[c] = e;
      sum += e;
    }
    total += static_cast<double>(sum);
  }
  return {top, total};
}

template <class T>
T loss_of(const RowSum<T>& row, T target_logit) {
  return static_cast<T>(std::log(row.sum) +
                        (static_cast<double>(row.top) - static_cast<double>(target_logit)));
}

// Writes the results of unlabelled rows and the indices of labelled ones; returns how many.
template <class T>
int64_t find_labelled(int64_t* labelled, T* losses, int32_t* predictions, const int32_t* targets,
                      const CrossEntropySize& size) {
  int64_t count = 0;
  for (int64_t r = 0; r < size.rows; ++r) {
    const int64_t target = targets[r];
    KATA_CHECK(target >= -1 && target < size.vocab, "cross_entropy: targets[{}] = {}, vocabulary {}", r,
               target, size.vocab);
    if (target >= 0) {
      labelled[count++] = r;
      continue;
    }
    losses[r] = 0;
    if (predictions) predictions[r] = -1;
  }
  return count;
}

// body(tile row, row of x and targets) for the rows of a tile, `per_unit` at a time.
template <class Body>
void for_tile(const int64_t* labelled, int64_t rows, int64_t per_unit, Body&& body) {
  parallel_blocks(rows, per_unit, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i, labelled[i]);
  });
}

// Gathers the tile's rows and computes their logits.
template <class T>
void compute_logits(const CrossEntropyScratch<T>& scratch, const T* x, const T* table,
                    const int64_t* labelled, const MatmulSize& product) {
  for_tile(labelled, product.m, copy_rows, [&](int64_t i, int64_t r) {
    std::copy_n(x + r * product.k, product.k, scratch.x + i * product.k);
  });
  matmul_forward<T>(scratch.logits, scratch.x, table, nullptr, 0, static_cast<T*>(nullptr), product);
}

}  // namespace

int64_t cross_entropy_tile_rows(const CrossEntropySize& size) {
  return std::min(size.rows, std::clamp(tile_elements / size.vocab, least_rows, most_rows));
}

template <class T>
void cross_entropy_forward(T* losses, int32_t* predictions, const T* x, const T* table,
                           const int32_t* targets, const CrossEntropyScratch<T>& scratch,
                           const CrossEntropySize& size) {
  const int64_t count = find_labelled(scratch.labelled, losses, predictions, targets, size);
  const int64_t tile = cross_entropy_tile_rows(size), per_unit = ceil_div(row_elements, size.vocab);
  for (int64_t begin = 0; begin < count; begin += tile) {
    const int64_t* labelled = scratch.labelled + begin;
    const MatmulSize product{std::min(tile, count - begin), size.vocab, size.width, size.width, size.vocab};
    compute_logits(scratch, x, table, labelled, product);
    for_tile(labelled, product.m, per_unit, [&](int64_t i, int64_t r) {
      const T* z = scratch.logits + i * size.vocab;
      const RowSum<T> row = exponentials<false, T>(z, size.vocab);
      losses[r] = loss_of(row, z[targets[r]]);
      if (predictions) {
        const T* found = std::find(z, z + size.vocab, row.top);
        predictions[r] = found == z + size.vocab ? 0 : static_cast<int32_t>(found - z);
      }
    });
  }
}

template <class T>
void cross_entropy_backward(T* losses, T* dx, T* dtable, const T* x, const T* table, const int32_t* targets,
                            T scale, const CrossEntropyScratch<T>& scratch, const CrossEntropySize& size) {
  const int64_t count = find_labelled(scratch.labelled, losses, nullptr, targets, size);
  const int64_t tile = cross_entropy_tile_rows(size), per_unit = ceil_div(row_elements, size.vocab);
  parallel_blocks(size.rows, copy_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      if (targets[r] < 0) std::fill_n(dx + r * size.width, size.width, T(0));
  });
  for (int64_t begin = 0; begin < count; begin += tile) {
    const int64_t* labelled = scratch.labelled + begin;
    const MatmulSize product{std::min(tile, count - begin), size.vocab, size.width, size.width, size.vocab};
    compute_logits(scratch, x, table, labelled, product);
    for_tile(labelled, product.m, per_unit, [&](int64_t i, int64_t r) {
      T* z = scratch.logits + i * size.vocab;
      const T target_logit = z[targets[r]];
      const RowSum<T> row = exponentials<true, T>(z, size.vocab);
      losses[r] = loss_of(row, target_logit);
      const T weight = static_cast<T>(static_cast<double>(scale) / row.sum);
#pragma omp simd
      for (int64_t c = 0; c < size.vocab; ++c) z[c] *= weight;
      z[targets[r]] -= scale;
    });
    matmul_backward_input<T>(scratch.dx, scratch.logits, table, false, product);
    for_tile(labelled, product.m, copy_rows, [&](int64_t i, int64_t r) {
      std::copy_n(scratch.dx + i * size.width, size.width, dx + r * size.width);
    });
    matmul_backward_weight<T>(dtable, scratch.logits, scratch.x, scratch.partial, product);
  }
}

#define KATA_INSTANTIATE(T)                                                                       \
  template void cross_entropy_forward<T>(T*, int32_t*, const T*, const T*, const int32_t*,        \
                                         const CrossEntropyScratch<T>&, const CrossEntropySize&); \
  template void cross_entropy_backward<T>(T*, T*, T*, const T*, const T*, const int32_t*, T,      \
                                          const CrossEntropyScratch<T>&, const CrossEntropySize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
