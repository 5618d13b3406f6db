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

int64_t feature_map_scratch(const FeatureMap& map) {
  return is_complex(map) ? thread_count() * 2 * map.width : 0;
}

// The psd family is homogeneous of order 2, so f(sqrt(sigma) x) = sigma f(x), and no scaled row is needed.
template <class T>
void feature_map_forward(T* f, const T* x, const FeatureMap& map, int64_t rows, int64_t x_stride,
                         T* scratch) {
  const int64_t n = map.features(), d = map.width;
  parallel_blocks(rows, block_rows, [&](int64_t begin, int64_t end) {
    T* lifted = scratch + thread_index() * 2 * d;
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * x_stride;
      if (map.first_order()) {
        lift_row(f + r * n, row, map);
        continue;
      }
      if (is_complex(map)) lift_row(lifted, row, map);
      token_features(f + r * n, is_complex(map) ? lifted : row, map, 0, n);
      scale_row(f + r * n, n, map.sigma());
    }
  });
}

template <class T>
void feature_map_backward(T* dx, const T* df, const T* x, const FeatureMap& map, int64_t rows,
                          int64_t x_stride, T* scratch) {
  const int64_t n = map.features(), d = map.width;
  parallel_blocks(rows, block_rows, [&](int64_t begin, int64_t end) {
    T *lifted = scratch + thread_index() * 2 * d, *dlifted = lifted + d;
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * x_stride;
      T* drow = dx + r * x_stride;
      if (map.first_order()) {
        lift_row_backward(drow, df + r * n, row, map);
        continue;
      }
      T* du = is_complex(map) ? dlifted : drow;
      std::fill_n(du, d, T(0));
      if (is_complex(map)) lift_row(lifted, row, map);
      token_features_backward(du, df + r * n, is_complex(map) ? lifted : row, map);
      scale_row(du, d, map.sigma());
      if (is_complex(map)) lift_row_backward(drow, du, row, map);
    }
  });
}

#define KATA_INSTANTIATE(T)                                                                    \
  template void feature_map_forward<T>(T*, const T*, const FeatureMap&, int64_t, int64_t, T*); \
  template void feature_map_backward<T>(T*, const T*, const T*, const FeatureMap&, int64_t, int64_t, T*);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
