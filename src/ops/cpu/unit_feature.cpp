#include "ops/unit_feature.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/feature_block.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 64;  // rows per unit
constexpr double least_squares = 1e-20;

// What |f|^2 is of the row: |f(x)|^2 of its lift; the closed form of the cone; sum_i |x_i|^4; the squares of
// all products of groups.
enum class Length { lift, lorentz, groups, gram };

Length length_of(const FeatureMap& map) {
  switch (map.kind) {
    case MapKind::identity:
    case MapKind::orthant:
      return Length::lift;
    case MapKind::lorentz:
      return Length::lorentz;
    case MapKind::psd:
    case MapKind::hermitian:  // one group: |x x^H| = |x|^2
    case MapKind::quaternionic:
      return Length::groups;
    case MapKind::psd_sum:
      return Length::gram;
  }
  KATA_CHECK(false, "unit_feature: no length for map {}", static_cast<int>(map.kind));
  return Length::lift;
}

// 1 / p for the power of two p with p <= max |x_j| < 2 p, so that times it is exact. Rows below the smallest
// normal number count as that. NaN is passed over: it shows in every sum of the row.
template <class T>
T inverse_power(const T* x, int64_t n) {
  T largest = std::numeric_limits<T>::min();
#pragma omp simd reduction(max : largest)
  for (int64_t j = 0; j < n; ++j) {
    const T size = std::abs(x[j]);
    largest = size > largest ? size : largest;
  }
  return 1 / std::ldexp(T(1), std::ilogb(largest));
}

// <a, b>, both times t.
template <class T>
T scaled_dot(const T* a, const T* b, T t, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += (a[j] * t) * (b[j] * t);
  return sum;
}

// <g, b t>
template <class T>
T dot_scaled(const T* g, const T* b, T t, int64_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += g[j] * (b[j] * t);
  return sum;
}

// Every map but lorentz: of b = lift or row, scaled by t to entries of size one.
template <class T>
struct Measure {
  T t;        // scales b
  T squares;  // |f(t b)|^2: at least 1 where b is not vanishing
  T root;     // its square root, in the psd family its fourth root
  bool zero;  // |f(b)|^2 <= 1e-20
};

template <class T>
Measure<T> measure(const T* b, const FeatureMap& map, Length length) {
  const int64_t part = map.width / map.groups;  // a number's parts count together
  const T t = inverse_power(b, map.width);
  const double power = 1 / static_cast<double>(t);
  if (length == Length::lift) {
    const T squares = scaled_dot(b, b, t, map.width);
    return {t, squares, std::sqrt(squares), static_cast<double>(squares) * power * power <= least_squares};
  }
  T squares = 0;
  for (int64_t i = 0; i < map.groups; ++i) {
    const T own = scaled_dot(b + i * part, b + i * part, t, part);
    squares += own * own;
    for (int64_t k = 0; k < i && length == Length::gram; ++k) {
      const T product = scaled_dot(b + i * part, b + k * part, t, part);
      squares += 2 * product * product;
    }
  }
  const double area = power * power;
  return {t, squares, std::sqrt(std::sqrt(squares)),
          static_cast<double>(squares) * area * area <= least_squares};
}

// lorentz: f = |h| (1 + tau^2) (c n, 1) with n = h / |h| and c = 1 / (1 + tau^2), so that no large number is
// formed: u = scale rho (c n, 1) with rho = 1 / sqrt(1 + c^2).
template <class T>
struct Cone {
  T t, inverse;  // n = (h t) inverse
  T c, rho;
  bool zero;

  Cone(const T* x, int64_t d) : t(inverse_power(x, d - 1)) {
    const T length = std::sqrt(scaled_dot(x, x, t, d - 1)), tau = x[d - 1];
    inverse = 1 / length;
    const T poison = 0 * tau + 0 * inverse;  // NaN where tau or |h| is not finite: that must not hide
    c = 1 / (1 + tau * tau) + poison;
    rho = 1 / std::sqrt(1 + c * c);
    // Bounded, so that |h| = 0 times it is 0.
    const double last = 1 + std::min(static_cast<double>(tau) * static_cast<double>(tau), 1e150);
    zero = static_cast<double>(length) / static_cast<double>(t) * std::sqrt(1 + last * last) <=
           std::sqrt(least_squares);
  }
};

template <class T>
void lorentz_forward(T* u, const T* x, T scale, int64_t d) {
  const Cone<T> cone(x, d);
  if (cone.zero) {
    std::fill_n(u, d, T(0));
    return;
  }
  const T factor = scale * cone.rho * cone.c;
#pragma omp simd
  for (int64_t j = 0; j < d - 1; ++j) u[j] = (x[j] * cone.t) * cone.inverse * factor;
  u[d - 1] = scale * cone.rho;
}

template <class T>
void lorentz_backward(T* dx, const T* du, const T* x, T scale, int64_t d) {
  const Cone<T> cone(x, d);
  if (cone.zero) {
    std::fill_n(dx, d, T(0));
    return;
  }
  const T along = dot_scaled(du, x, cone.t, d - 1) * cone.inverse, last = du[d - 1], tau = x[d - 1];
  const T factor = scale * cone.rho * cone.c * cone.t * cone.inverse;  // the small c meets a large t first
#pragma omp simd
  for (int64_t j = 0; j < d - 1; ++j) dx[j] = (du[j] - (x[j] * cone.t) * cone.inverse * along) * factor;
  const T slope = -2 * (tau * cone.c) * cone.c;  // dc / dtau
  dx[d - 1] = scale * cone.rho * cone.rho * cone.rho * (along - cone.c * last) * slope;
}

template <class T>
void forward_row(T* u, const T* x, T scale, const FeatureMap& map, Length length) {
  const int64_t d = map.width;
  if (length == Length::lorentz) return lorentz_forward(u, x, scale, d);
  if (length == Length::lift) {
    lift_row(u, x, map);
    x = u;
  }
  const Measure<T> m = measure(x, map, length);
  if (m.zero) {
    std::fill_n(u, d, T(0));
    return;
  }
  const T factor = scale / m.root;
#pragma omp simd
  for (int64_t j = 0; j < d; ++j) u[j] = (x[j] * m.t) * factor;
}

// The lift stands in dx until its adjoint is applied.
template <class T>
void lift_backward(T* dx, const T* du, const T* x, T scale, const FeatureMap& map) {
  const int64_t d = map.width;
  lift_row(dx, x, map);
  const Measure<T> m = measure(dx, map, Length::lift);
  if (m.zero) {
    std::fill_n(dx, d, T(0));
    return;
  }
  const T along = dot_scaled(du, dx, m.t, d) / m.squares, factor = scale / m.root * m.t;
#pragma omp simd
  for (int64_t j = 0; j < d; ++j) dx[j] = (du[j] - along * (dx[j] * m.t)) * factor;
  lift_row_backward(dx, dx, x, map);
}

// The quarter of the gradient of |f(x)|^2 by group i is sum_k (x_i . x_k) x_k, or |x_i|^2 x_i alone.
template <class T>
void products_backward(T* dx, const T* du, const T* x, T scale, const FeatureMap& map, Length length) {
  const int64_t d = map.width, part = d / map.groups;
  std::fill_n(dx, d, T(0));
  const Measure<T> m = measure(x, map, length);
  if (m.zero) return;
  const T along = dot_scaled(du, x, m.t, d) / m.squares, factor = scale / m.root * m.t;
  for (int64_t i = 0; i < map.groups; ++i) {
    const T *xi = x + i * part, *g = du + i * part;
    T* di = dx + i * part;
    for (int64_t k = 0; k < map.groups; ++k) {
      if (k != i && length != Length::gram) continue;
      const T* xk = x + k * part;
      const T product = scaled_dot(xi, xk, m.t, part);
#pragma omp simd
      for (int64_t j = 0; j < part; ++j) di[j] += product * (xk[j] * m.t);
    }
#pragma omp simd
    for (int64_t j = 0; j < part; ++j) di[j] = (g[j] - along * di[j]) * factor;
  }
}

template <class T>
void backward_row(T* dx, const T* du, const T* x, T scale, const FeatureMap& map, Length length) {
  switch (length) {
    case Length::lift:
      return lift_backward(dx, du, x, scale, map);
    case Length::lorentz:
      return lorentz_backward(dx, du, x, scale, map.width);
    case Length::groups:
    case Length::gram:
      return products_backward(dx, du, x, scale, map, length);
  }
}

}  // namespace

template <class T>
void unit_feature_forward(T* u, const T* x, T scale, const FeatureMap& map, const UnitFeatureSize& size) {
  const Length length = length_of(map);
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < size.heads; ++h)
        forward_row(u + r * size.u_stride + h * map.width, x + r * size.x_stride + h * map.width, scale, map,
                    length);
  });
}

template <class T>
void unit_feature_backward(T* dx, const T* du, const T* x, T scale, const FeatureMap& map,
                           const UnitFeatureSize& size) {
  const Length length = length_of(map);
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < size.heads; ++h)
        backward_row(dx + r * size.dx_stride + h * map.width, du + r * size.u_stride + h * map.width,
                     x + r * size.x_stride + h * map.width, scale, map, length);
  });
}

#define KATA_INSTANTIATE(T)                                                                          \
  template void unit_feature_forward<T>(T*, const T*, T, const FeatureMap&, const UnitFeatureSize&); \
  template void unit_feature_backward<T>(T*, const T*, const T*, T, const FeatureMap&,               \
                                         const UnitFeatureSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
