// Threads, such that results do not depend on how many there are.
//
// The rule: work is cut into units by the shape alone, a unit is done by one thread in a fixed order, and
// sums over units are taken in the order of the units afterwards. Nothing is reduced with OpenMP.
#pragma once

#include <cstdint>
#include <exception>
#include <omp.h>

namespace kata {

inline int thread_count() {
  return omp_get_max_threads();
}
inline int thread_index() {
  return omp_get_thread_num();
}
inline void set_thread_count(int threads) {
  omp_set_num_threads(threads);
}

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// body(i) for i in [0, n), dynamically scheduled. An exception in a unit is rethrown here.
template <class Body>
void parallel_for(int64_t n, Body&& body) {
  if (n == 1 || thread_count() == 1) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < n; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// body(begin, end) over [0, n) in blocks of `block`: the partition depends on n and block alone.
template <class Body>
void parallel_blocks(int64_t n, int64_t block, Body&& body) {
  parallel_for(ceil_div(n, block), [&](int64_t i) {
    const int64_t begin = i * block;
    body(begin, begin + block < n ? begin + block : n);
  });
}

}  // namespace kata
