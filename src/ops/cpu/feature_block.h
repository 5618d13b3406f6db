// Features in the two layouts that the forms need, and their adjoints.
//
// A map is a lift u = f(x) for the first-order maps and u = x for the psd family, whose features are then
// products of two entries of u. The lift of hermitian and quaternionic is an order: all real parts, then all
// i parts, and so on, so that a part of the vector is contiguous as a group of psd is. Gradients are
// accumulated on u; the adjoint of the lift comes last, in place. A chunk keeps u transposed,
// [width][tokens], so that every feature of a whole chunk is one vector product.
#pragma once

#include <cmath>

#include "ops/cpu/causal_tiles.h"
#include "ops/feature_map.h"

namespace kata::cpu {

inline bool has_lift(const FeatureMap& map) {
  return map.kind != MapKind::identity && map.kind != MapKind::psd && map.kind != MapKind::psd_sum;
}
inline bool is_complex(const FeatureMap& map) {  // or quaternionic
  return map.kind == MapKind::hermitian || map.kind == MapKind::quaternionic;
}

// Multiplication of a complex number or quaternion z by the unit e_c of {1, i, j, k}: part p of the product
// is sign * part `from` of z.
struct SignedPart {
  int64_t from;
  int sign;
};
inline SignedPart times_unit(int64_t c, int64_t p) {  // z e_c
  constexpr int sign[4][4] = {{1, 1, 1, 1}, {-1, 1, 1, -1}, {-1, -1, 1, 1}, {-1, 1, -1, 1}};
  return {p ^ c, sign[c][p]};
}
inline SignedPart unit_times(int64_t c, int64_t p) {  // e_c z
  constexpr int sign[4][4] = {{1, 1, 1, 1}, {-1, 1, -1, 1}, {-1, 1, 1, -1}, {-1, -1, 1, 1}};
  return {p ^ c, sign[c][p]};
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
  if (is_complex(map)) {
    const int64_t parts = map.parts(), part = map.part();
    for (int64_t p = 0; p < parts; ++p)
      for (int64_t j = 0; j < part; ++j) u[p * part + j] = x[j * parts + p];
    return;
  }
  std::copy_n(x, d, u);
  if (map.kind == MapKind::lorentz) u[d - 1] = euclidean_norm(x, d - 1) * (1 + x[d - 1] * x[d - 1]);
}

// dx = adjoint of the lift at x applied to du; dx may be du unless the lift is an order.
template <class T>
void lift_row_backward(T* dx, const T* du, const T* x, const FeatureMap& map) {
  const int64_t d = map.width;
  if (map.kind == MapKind::orthant) {
#pragma omp simd
    for (int64_t j = 0; j < d; ++j) dx[j] = x[j] > 0 ? du[j] : T(0);
    return;
  }
  if (is_complex(map)) {
    const int64_t parts = map.parts(), part = map.part();
    for (int64_t p = 0; p < parts; ++p)
      for (int64_t j = 0; j < part; ++j) dx[j * parts + p] = du[p * part + j];
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

// In place; row: scratch of [width].
template <class T>
void lift_rows_backward(const Rows<T>& dx, const Rows<const T>& x, int64_t begin, int64_t end,
                        const FeatureMap& map, T* row) {
  if (!has_lift(map)) return;
  for (int64_t t = begin; t < end; ++t) {
    std::copy_n(dx.at(t), map.width, row);
    lift_row_backward(dx.at(t), row, x.at(t), map);
  }
}

// Packed features come in blocks, a triangle of pairs (a, b) each: the groups of psd, or the components of
// the others, of which only the first has squares. A run is packed features feature .. feature + (end -
// begin) of one block: squares of b in [begin, end) where a < 0 (coefficient 1), else products of a and b < a
// (coefficient sqrt(2)).
struct ProductRun {
  int64_t feature, block, a, begin, end;
};

// The runs that cover packed features [begin, end).
template <class Body>
void for_each_run(const FeatureMap& map, int64_t begin, int64_t end, Body&& body) {
  const int64_t part = map.part(), strict = part * (part - 1) / 2, packed = strict + part;
  const bool groups = map.kind == MapKind::psd;
  for (int64_t p = begin; p < end;) {
    const bool squares = groups || p < packed;
    const int64_t block = groups ? p / packed : p < packed ? 0 : 1 + (p - packed) / strict;
    const int64_t block_begin = groups ? block * packed : block == 0 ? 0 : packed + (block - 1) * strict;
    const int64_t pairs_begin = block_begin + (squares ? part : 0);
    const int64_t block_end = std::min(end, pairs_begin + strict);
    if (p < pairs_begin) {
      const int64_t b = p - block_begin, stop = std::min(part, end - block_begin);
      body(ProductRun{p, block, -1, b, stop});
      p += stop - b;
    }
    int64_t a = 1, b = p - pairs_begin;
    while (b >= a && p < block_end) b -= a++;
    for (; p < block_end; ++a, b = 0) {
      const int64_t stop = std::min(a, b + block_end - p);
      body(ProductRun{p, block, a, b, stop});
      p += stop - b;
    }
  }
}

// A feature is a sum of signed products u[a_column + a] u[b_column + b]: one for psd, one for each group of
// psd_sum, and the parts of a component of z_a z_b*, which is the product of z_a with unit_times(c, z_b).
struct Product {
  int64_t a_column, b_column;
  int sign;
};
inline int64_t product_count(const FeatureMap& map) {
  return map.kind == MapKind::psd ? 1 : map.parts();
}
inline Product product_of(const FeatureMap& map, int64_t block, int64_t i) {
  const int64_t part = map.part();
  if (map.kind == MapKind::psd) return {block * part, block * part, 1};
  if (map.kind == MapKind::psd_sum) return {i * part, i * part, 1};
  const SignedPart other = unit_times(block, i);
  return {i * part, other.from * part, other.sign};
}

template <class T>
T coefficient_of(const ProductRun& run, const Product& product) {
  return run.a < 0 ? T(1) : static_cast<T>(product.sign) * static_cast<T>(M_SQRT2);
}

// Features [begin, end) of a chunk, [end - begin][stride]: rows of ut itself for the first-order maps, else
// built in f.
template <class T>
const T* chunk_features(T* f, const T* ut, int64_t stride, int64_t m, const FeatureMap& map, int64_t begin,
                        int64_t end) {
  if (map.first_order()) return ut + begin * stride;
  for_each_run(map, begin, end, [&](const ProductRun& run) {
    for (int64_t i = 0; i < product_count(map); ++i) {
      const Product product = product_of(map, run.block, i);
      const T coefficient = coefficient_of<T>(run, product);
      for (int64_t b = run.begin; b < run.end; ++b) {
        T* out = f + (run.feature + b - run.begin - begin) * stride;
        const T* ua = ut + (product.a_column + (run.a < 0 ? b : run.a)) * stride;
        const T* ub = ut + (product.b_column + b) * stride;
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
    for (int64_t i = 0; i < product_count(map); ++i) {
      const Product product = product_of(map, run.block, i);
      const T coefficient = coefficient_of<T>(run, product);
      for (int64_t b = run.begin; b < run.end; ++b) {
        const T* d = df + (run.feature + b - run.begin - begin) * stride;
        const int64_t a_row = product.a_column + (run.a < 0 ? b : run.a), b_row = product.b_column + b;
        const T *ua = ut + a_row * stride, *ub = ut + b_row * stride;
        T *da = dut + a_row * stride, *db = dut + b_row * stride;
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
    for (int64_t i = 0; i < product_count(map); ++i) {
      const Product product = product_of(map, run.block, i);
      const T* ub = u + product.b_column + run.begin;
      if (run.a < 0) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) out[j] += ub[j] * ub[j];
      } else {
        const T ua = coefficient_of<T>(run, product) * u[product.a_column + run.a];
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
    for (int64_t i = 0; i < product_count(map); ++i) {
      const Product product = product_of(map, run.block, i);
      const T* ub = u + product.b_column + run.begin;
      T* db = du + product.b_column + run.begin;
      if (run.a < 0) {
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) db[j] += 2 * d[j] * ub[j];
        continue;
      }
      const T coefficient = coefficient_of<T>(run, product);
      const T ua = coefficient * u[product.a_column + run.a];
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) {
        sum += d[j] * ub[j];
        db[j] += ua * d[j];
      }
      du[product.a_column + run.a] += coefficient * sum;
    }
  });
}

}  // namespace kata::cpu
