// A state and one token: the update and the read of the recurrent form.
#pragma once

#include "ops/cpu/feature_block.h"

namespace kata::cpu {

// Rows of the state (8 KiB at dv = 64) that several query heads read in turn.
inline constexpr int64_t cached_rows = 32;

// rows of s [n, columns] = keep s + f v^T
template <class T>
void add_outer(T* s, T keep, const T* f, const T* v, int64_t n, int64_t columns) {
  for (int64_t p = 0; p < n; ++p) {
    T* row = s + p * columns;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) row[j] = keep * row[j] + f[p] * v[j];
  }
}

// out += fq^T s
template <class T>
void add_read(T* out, const T* s, const T* fq, int64_t n, int64_t columns) {
  for (int64_t p = 0; p < n; ++p) {
    const T* row = s + p * columns;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) out[j] += fq[p] * row[j];
  }
}

// s = keep s + fk v^T, then out += fq^T s, four rows at a time so that v and out are loaded once for the
// four.
template <class T>
void update_and_read(T* s, T keep, T* out, const T* fk, const T* v, const T* fq, int64_t n, int64_t columns) {
  int64_t p = 0;
  for (; p + 4 <= n; p += 4) {
    T *s0 = s + p * columns, *s1 = s0 + columns, *s2 = s1 + columns, *s3 = s2 + columns;
    const T k0 = fk[p], k1 = fk[p + 1], k2 = fk[p + 2], k3 = fk[p + 3];
    const T q0 = fq[p], q1 = fq[p + 1], q2 = fq[p + 2], q3 = fq[p + 3];
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
      const T x0 = keep * s0[j] + k0 * v[j], x1 = keep * s1[j] + k1 * v[j];
      const T x2 = keep * s2[j] + k2 * v[j], x3 = keep * s3[j] + k3 * v[j];
      s0[j] = x0;
      s1[j] = x1;
      s2[j] = x2;
      s3[j] = x3;
      out[j] += (q0 * x0 + q1 * x1) + (q2 * x2 + q3 * x3);
    }
  }
  add_outer(s + p * columns, keep, fk + p, v, n - p, columns);
  add_read(out, s + p * columns, fq + p, n - p, columns);
}

// The state of one key head fades, takes one token and is read by `group` query heads.
// s [n, columns], fk [n], v [columns], fq [group, n], out [group, columns] +=
template <class T>
void token_step(T* s, T keep, T* out, const T* fk, const T* v, const T* fq, int64_t n, int64_t columns,
                int64_t group) {
  if (group == 1) return update_and_read(s, keep, out, fk, v, fq, n, columns);
  for (int64_t p = 0; p < n; p += cached_rows) {
    const int64_t rows = std::min(cached_rows, n - p);
    update_and_read(s + p * columns, keep, out, fk + p, v, fq + p, rows, columns);
    for (int64_t i = 1; i < group; ++i)
      add_read(out + i * columns, s + p * columns, fq + i * n + p, rows, columns);
  }
}

// u = sqrt(sigma) * lift(x)
template <class T>
void load_row(T* u, const T* x, const FeatureMap& map) {
  const T scale = static_cast<T>(std::sqrt(map.sigma()));
  lift_row(u, x, map);
  for (int64_t j = 0; j < map.width; ++j) u[j] *= scale;
}

// One token is cut over heads, and over blocks of features where there are few heads.
inline int64_t step_blocks(const FeatureMap& map, const AttentionSize& size) {
  const int64_t few = 4 / std::max<int64_t>(1, size.batch * size.kv_heads);
  return std::max<int64_t>(1, std::min(few, map.features() / 256));
}

}  // namespace kata::cpu
