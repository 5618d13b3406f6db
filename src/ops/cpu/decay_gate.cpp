#include "ops/decay_gate.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;  // rows per unit; fixed, so that sums do not depend on the thread count

// log(1 + u) for u in [0, 1], to rounding: 2 artanh(s) with s = u / (2 + u) <= 1/3, whose odd series up to
// s^15 leaves 1.4e-9 of the value. Small u keep all their digits.
inline float log1p_unit(float u) {
  const float s = u / (2 + u), q = s * s;
  float p = 1 / 15.0f;
  p = p * q + 1 / 13.0f;
  p = p * q + 1 / 11.0f;
  p = p * q + 1 / 9.0f;
  p = p * q + 1 / 7.0f;
  p = p * q + 1 / 5.0f;
  p = p * q + 1 / 3.0f;
  return 2 * (s + s * q * p);
}
inline double log1p_unit(double u) {
  return std::log1p(u);
}

// softplus and its derivative from one exponential, whose argument is never positive.
template <class T>
struct SoftPlus {
  T value, slope;

  explicit SoftPlus(T z) {
    const T e = fast_exp(z > 0 ? -z : z);
    value = (z > 0 ? z : T(0)) + log1p_unit(e);
    slope = (z > 0 ? T(1) : e) / (1 + e);
  }
};

template <class T>
void fill_rate(T* rate, const T* a_log, int64_t heads) {
  for (int64_t h = 0; h < heads; ++h) rate[h] = std::exp(a_log[h]);
}

// Gradients of one row; the sums over rows go to da (without the factor -rate) and db. A branch on ddt inside
// the loop would keep it from being vectorised.
template <bool with_ddt, class T>
void backward_row(T* dx, T* da, T* db, const T* dlog_decay, const T* ddt, const T* x, const T* bias,
                  const T* rate, int64_t heads) {
#pragma omp simd
  for (int64_t h = 0; h < heads; ++h) {
    const SoftPlus<T> plus(x[h] + bias[h]);
    const T g = dlog_decay[h];
    T d = -rate[h] * g;
    if constexpr (with_ddt) d += ddt[h];
    d *= plus.slope;
    da[h] += g * plus.value;
    db[h] += d;
    dx[h] = d;
  }
}

}  // namespace

template <class T>
void decay_gate_forward(T* log_decay, T* dt, const T* x, const T* a_log, const T* dt_bias, T* rate,
                        const DecayGateSize& size) {
  fill_rate(rate, a_log, size.heads);
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* xr = x + r * size.x_stride;
      T* log_row = log_decay + r * size.heads;
      T* dt_row = dt ? dt + r * size.heads : nullptr;
#pragma omp simd
      for (int64_t h = 0; h < size.heads; ++h) {
        const T step = SoftPlus<T>(xr[h] + dt_bias[h]).value;
        log_row[h] = -rate[h] * step;
        if (dt_row) dt_row[h] = step;
      }
    }
  });
}

int64_t decay_gate_partials(const DecayGateSize& size) {
  return ceil_div(size.rows, block_rows);
}

template <class T>
void decay_gate_backward(T* dx, T* da_log, T* ddt_bias, const T* dlog_decay, const T* ddt, const T* x,
                         const T* a_log, const T* dt_bias, T* rate, T* partial, const DecayGateSize& size) {
  const int64_t heads = size.heads;
  fill_rate(rate, a_log, heads);
  parallel_blocks(size.rows, block_rows, [&](int64_t begin, int64_t end) {
    T *da = partial + begin / block_rows * 2 * heads, *db = da + heads;
    std::fill_n(da, 2 * heads, T(0));
    for (int64_t r = begin; r < end; ++r) {
      const T *g = dlog_decay + r * heads, *xr = x + r * size.x_stride;
      T* out = dx + r * size.dx_stride;
      if (ddt)
        backward_row<true>(out, da, db, g, ddt + r * heads, xr, dt_bias, rate, heads);
      else
        backward_row<false>(out, da, db, g, ddt, xr, dt_bias, rate, heads);
    }
  });
  for (int64_t b = 0; b < decay_gate_partials(size); ++b) {
    const T *da = partial + b * 2 * heads, *db = da + heads;
    for (int64_t h = 0; h < heads; ++h) {
      da_log[h] -= rate[h] * da[h];
      ddt_bias[h] += db[h];
    }
  }
}

#define KATA_INSTANTIATE(T)                                                                                  \
  template void decay_gate_forward<T>(T*, T*, const T*, const T*, const T*, T*, const DecayGateSize&);       \
  template void decay_gate_backward<T>(T*, T*, T*, const T*, const T*, const T*, const T*, const T*, T*, T*, \
                                       const DecayGateSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
