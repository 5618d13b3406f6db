#include "ops/silu_gate.h"

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_elements = 16384;  // of y, per unit

int64_t block_rows(int64_t width) {
  return ceil_div(block_elements, width > 0 ? width : 1);
}

}  // namespace

template <class T>
void silu_gate_forward(T* y, const T* x, const T* g, const SiluGateSize& size) {
  parallel_blocks(size.rows, block_rows(size.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *in = x + r * size.x_stride, *gate = g + r * size.g_stride;
      T* out = y + r * size.y_stride;
#pragma omp simd
      for (int64_t j = 0; j < size.width; ++j) out[j] = in[j] * silu(gate[j]);
    }
  });
}

template <class T>
void silu_gate_backward(T* dx, T* dg, const T* dy, const T* x, const T* g, const SiluGateSize& size) {
  parallel_blocks(size.rows, block_rows(size.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T *d = dy + r * size.y_stride, *in = x + r * size.x_stride, *gate = g + r * size.g_stride;
      T *dx_row = dx + r * size.dx_stride, *dg_row = dg + r * size.dg_stride;
#pragma omp simd
      for (int64_t j = 0; j < size.width; ++j) {
        const T dj = d[j], z = gate[j], s = sigmoid(z), active = z * s;
        const T dz = dj * in[j] * (s + active * (1 - s));
        dx_row[j] = dj * active;
        dg_row[j] = dz;
      }
    }
  });
}

#define KATA_INSTANTIATE(T)                                                        \
  template void silu_gate_forward<T>(T*, const T*, const T*, const SiluGateSize&); \
  template void silu_gate_backward<T>(T*, T*, const T*, const T*, const T*, const SiluGateSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
