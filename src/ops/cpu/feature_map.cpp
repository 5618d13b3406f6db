#include "ops/feature_map.h"

#include "ops/cpu/feature_block.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 64;

template <class T>
void scale_row(T* x, int64_t n, double factor) {
  const T scale = static_cast<T>(factor);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] *= scale;
}

}  // namespace

// The psd family is homogeneous of order 2, so f(sqrt(sigma) x) = sigma f(x), and no scaled row is needed.
template <class T>
void feature_map_forward(T* f, const T* x, const FeatureMap& map, int64_t rows, int64_t x_stride) {
  const int64_t n = map.features();
  parallel_blocks(rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (map.first_order()) {
        lift_row(f + r * n, x + r * x_stride, map);
        continue;
      }
      token_features(f + r * n, x + r * x_stride, map, 0, n);
      scale_row(f + r * n, n, map.sigma());
    }
  });
}

template <class T>
void feature_map_backward(T* dx, const T* df, const T* x, const FeatureMap& map, int64_t rows,
                          int64_t x_stride) {
  const int64_t n = map.features();
  parallel_blocks(rows, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* row = dx + r * x_stride;
      if (map.first_order()) {
        lift_row_backward(row, df + r * n, x + r * x_stride, map);
        continue;
      }
      std::fill_n(row, map.width, T(0));
      token_features_backward(row, df + r * n, x + r * x_stride, map);
      scale_row(row, map.width, map.sigma());
    }
  });
}

#define KATA_INSTANTIATE(T)                                                                \
  template void feature_map_forward<T>(T*, const T*, const FeatureMap&, int64_t, int64_t); \
  template void feature_map_backward<T>(T*, const T*, const T*, const FeatureMap&, int64_t, int64_t);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
