// Features in the two layouts that the forms need, and their adjoints.
//
// A map is a lift u = f(x) for the first-order maps and u = x for the psd family, whose features are then
// products of two entries of u. Gradients are accumulated on u; the adjoint of the lift comes last, in place.
// A chunk keeps u transposed, [width][tokens], so that every feature of a whole chunk is one vector product.
#pragma once

#include <cmath>

#include "ops/cpu/causal_tiles.h"
#include "ops/feature_map.h"

namespace kata::cpu {

inline bool has_lift(const FeatureMap& map) {
  return map.kind == MapKind::orthant || map.kind == MapKind::lorentz;
}

template <class T>
T euclidean_norm(const T* x, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] * x[j];
  return std::sqrt(sum);
}

// u = lift of one row; u is not x.
template <class T>
void lift_row(T* u, const T* x, const FeatureMap& map) {
  const int64_t d = map.width;
  if (map.kind == MapKind::orthant) {
#pragma omp simd
    for (int64_t j = 0; j < d; ++j) u[j] = (x[j] < 0 ? T(0) : x[j]) + T(1e-6);  // NaN stays NaN
    return;
  }
  std::copy_n(x, d, u);
  if (map.kind == MapKind::lorentz) u[d - 1] = euclidean_norm(x, d - 1) * (1 + x[d - 1] * x[d - 1]);
}

// dx = adjoint of the lift at x applied to du; dx may be du.
template <class T>
void lift_row_backward(T* dx, const T* du, const T* x, const FeatureMap& map) {
  const int64_t d = map.width;
  if (map.kind == MapKind::orthant) {
#pragma omp simd
    for (int64_t j = 0; j < d; ++j) dx[j] = x[j] > 0 ? du[j] : T(0);
    return;
  }
  if (map.kind != MapKind::lorentz) {
    std::copy_n(du, d, dx);
    return;
  }
  const T norm = euclidean_norm(x, d - 1), tau = x[d - 1], last = du[d - 1];
  const T scale = norm > 0 ? last * (1 + tau * tau) / norm : T(0);
#pragma omp simd
  for (int64_t j = 0; j < d - 1; ++j) dx[j] = du[j] + scale * x[j];
  dx[d - 1] = last * norm * 2 * tau;
}

// Rows [0, n) of x lifted: x itself where the map has no lift, else the copy in `lifted`, [n, width].
template <class T>
Rows<const T> lift_rows(T* lifted, const Rows<const T>& x, int64_t n, const FeatureMap& map) {
  if (!has_lift(map)) return x;
  for (int64_t t = 0; t < n; ++t) lift_row(lifted + t * map.width, x.at(t), map);
  return {lifted, map.width};
}

template <class T>
void lift_rows_backward(const Rows<T>& dx, const Rows<const T>& x, int64_t begin, int64_t end,
                        const FeatureMap& map) {
  if (!has_lift(map)) return;
  for (int64_t t = begin; t < end; ++t) lift_row_backward(dx.at(t), dx.at(t), x.at(t), map);
}

// Packed features first .. first + (end - begin) of the psd family: products u_a u_b for b in [begin, end) of
// the group that starts at column `group`; squares (a = b, coefficient 1) where a < 0, else b < a with
// sqrt(2).
struct ProductRun {
  int64_t feature, group, a, begin, end;
};

// The runs that cover packed features [begin, end).
template <class Body>
void for_each_run(const FeatureMap& map, int64_t begin, int64_t end, Body&& body) {
  const int64_t part = map.part(), packed = part * (part + 1) / 2;
  for (int64_t p = begin; p < end;) {
    const int64_t group_begin = p / packed * packed, column = p / packed * part;
    const int64_t group_end = std::min(end, group_begin + packed);
    if (p - group_begin < part) {
      const int64_t b = p - group_begin, stop = std::min(part, group_end - group_begin);
      body(ProductRun{p, column, -1, b, stop});
      p += stop - b;
    }
    int64_t a = 1, b = p - group_begin - part;
    while (b >= a && p < group_end) b -= a++;
    for (; p < group_end; ++a, b = 0) {
      const int64_t stop = std::min(a, b + group_end - p);
      body(ProductRun{p, column, a, b, stop});
      p += stop - b;
    }
  }
}

// psd adds nothing to a run; psd_sum adds the same run of every group.
inline int64_t summed_groups(const FeatureMap& map) {
  return map.kind == MapKind::psd_sum ? map.groups : 1;
}

// Features [begin, end) of a chunk, [end - begin][stride]: rows of ut itself for the first-order maps, else
// built in f.
template <class T>
const T* chunk_features(T* f, const T* ut, int64_t stride, int64_t m, const FeatureMap& map, int64_t begin,
                        int64_t end) {
  if (map.first_order()) return ut + begin * stride;
  for_each_run(map, begin, end, [&](const ProductRun& run) {
    const T coefficient = run.a < 0 ? T(1) : static_cast<T>(M_SQRT2);
    for (int64_t b = run.begin; b < run.end; ++b) {
      T* out = f + (run.feature + b - run.begin - begin) * stride;
      for (int64_t i = 0; i < summed_groups(map); ++i) {
        const T* group = ut + (run.group + i * map.part()) * stride;
        const T* ua = group + (run.a < 0 ? b : run.a) * stride;
        const T* ub = group + b * stride;
        if (i == 0) {
#pragma omp simd
          for (int64_t t = 0; t < m; ++t) out[t] = coefficient * ua[t] * ub[t];
        } else {
#pragma omp simd
          for (int64_t t = 0; t < m; ++t) out[t] += coefficient * ua[t] * ub[t];
        }
      }
    }
  });
  return f;
}

// dut [width][stride] += adjoint of chunk_features applied to df [end - begin][stride].
template <class T>
void chunk_features_backward(T* dut, const T* df, const T* ut, int64_t stride, int64_t m,
                             const FeatureMap& map, int64_t begin, int64_t end) {
  if (map.first_order()) {
    for (int64_t p = begin; p < end; ++p)
#pragma omp simd
      for (int64_t t = 0; t < m; ++t) dut[p * stride + t] += df[(p - begin) * stride + t];
    return;
  }
  for_each_run(map, begin, end, [&](const ProductRun& run) {
    const T coefficient = run.a < 0 ? T(1) : static_cast<T>(M_SQRT2);
    for (int64_t i = 0; i < summed_groups(map); ++i)
      for (int64_t b = run.begin; b < run.end; ++b) {
        const T* d = df + (run.feature + b - run.begin - begin) * stride;
        const int64_t column = run.group + i * map.part(), a = run.a < 0 ? b : run.a;
        const T *ua = ut + (column + a) * stride, *ub = ut + (column + b) * stride;
        T *da = dut + (column + a) * stride, *db = dut + (column + b) * stride;
        if (run.a < 0) {
#pragma omp simd
          for (int64_t t = 0; t < m; ++t) da[t] += 2 * d[t] * ua[t];
        } else {
#pragma omp simd
          for (int64_t t = 0; t < m; ++t) {
            const T scaled = coefficient * d[t];
            da[t] += scaled * ub[t];
            db[t] += scaled * ua[t];
          }
        }
      }
  });
}

// Features [begin, end) of one token, from its scaled and lifted row u.
template <class T>
void token_features(T* f, const T* u, const FeatureMap& map, int64_t begin, int64_t end) {
  if (map.first_order()) {
    std::copy_n(u + begin, end - begin, f);
    return;
  }
  std::fill_n(f, end - begin, T(0));
  for_each_run(map, begin, end, [&](const ProductRun& run) {
    T* out = f + run.feature - begin;
    const int64_t n = run.end - run.begin;
    for (int64_t i = 0; i < summed_groups(map); ++i) {
      const T *group = u + run.group + i * map.part(), *ub = group + run.begin;
      if (run.a < 0) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] += ub[j] * ub[j];
      } else {
        const T ua = static_cast<T>(M_SQRT2) * group[run.a];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] += ua * ub[j];
      }
    }
  });
}

// du += adjoint of token_features over all features.
template <class T>
void token_features_backward(T* du, const T* df, const T* u, const FeatureMap& map) {
  if (map.first_order()) {
#pragma omp simd
    for (int64_t j = 0; j < map.width; ++j) du[j] += df[j];
    return;
  }
  for_each_run(map, 0, map.features(), [&](const ProductRun& run) {
    const T* d = df + run.feature;
    const int64_t n = run.end - run.begin;
    for (int64_t i = 0; i < summed_groups(map); ++i) {
      const int64_t column = run.group + i * map.part();
      const T* ub = u + column + run.begin;
      T* db = du + column + run.begin;
      if (run.a < 0) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) db[j] += 2 * d[j] * ub[j];
        continue;
      }
      const T ua = static_cast<T>(M_SQRT2) * u[column + run.a];
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) {
        sum += d[j] * ub[j];
        db[j] += ua * d[j];
      }
      du[column + run.a] += static_cast<T>(M_SQRT2) * sum;
    }
  });
}

}  // namespace kata::cpu
