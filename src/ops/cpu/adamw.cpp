#include "ops/adamw.h"

#include <cmath>

#include "base/parallel.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_elements = 16384;

}  // namespace

template <class T>
void adamw(T* p, T* m, T* v, const T* g, int64_t n, const AdamWSettings& s) {
  const double step = static_cast<double>(s.step);
  const T beta1 = static_cast<T>(s.beta1), rest1 = static_cast<T>(1 - s.beta1);
  const T beta2 = static_cast<T>(s.beta2), rest2 = static_cast<T>(1 - s.beta2);
  const T rate = static_cast<T>(s.lr / (1 - std::pow(s.beta1, step)));
  const T root = static_cast<T>(1 / std::sqrt(1 - std::pow(s.beta2, step)));
  const T decay = static_cast<T>(s.lr * s.weight_decay), eps = static_cast<T>(s.eps);
  const T scale = static_cast<T>(s.gradient_scale);
  parallel_blocks(n, block_elements, [&](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const T gradient = g[i] * scale;
      const T first = beta1 * m[i] + rest1 * gradient;
      const T second = beta2 * v[i] + rest2 * gradient * gradient;
      m[i] = first;
      v[i] = second;
      p[i] -= decay * p[i] + rate * first / (std::sqrt(second) * root + eps);
    }
  });
}

#define KATA_INSTANTIATE(T) template void adamw<T>(T*, T*, T*, const T*, int64_t, const AdamWSettings&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
