// AdamW over a flat range, four elements a thread.
//
// Floor: memory. p, m, v, g are read, p, m, v written, 28 bytes an element, and 2 for the copy in 16 bits.
#include <cmath>

#include "kernels/common/elements.cuh"
#include "kernels/common/launch.h"
#include "ops/adamw.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256, elements = 4;

struct Factors {
  float lr, beta1, beta2, eps, decay, gradient_scale;
  float correct1, correct2;  // 1 / (1 - beta^step)
};

template <int N>
__device__ void update(float* p, float* m, float* v, const float* g, bf16* copy, const Factors& f) {
  float x[N], first[N], second[N], d[N];
  load<N>(x, p);
  load<N>(first, m);
  load<N>(second, v);
  load<N>(d, g);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    d[i] *= f.gradient_scale;
    first[i] = f.beta1 * first[i] + (1 - f.beta1) * d[i];
    second[i] = f.beta2 * second[i] + (1 - f.beta2) * d[i] * d[i];
    const float step = first[i] * f.correct1 / (sqrtf(second[i] * f.correct2) + f.eps);
    x[i] -= f.lr * (step + f.decay * x[i]);
  }
  store<N>(p, x);
  store<N>(m, first);
  store<N>(v, second);
  if (copy != nullptr) store<N>(copy, x);
}

__global__ void adamw_kernel(float* p, float* m, float* v, const float* g, bf16* copy, int64_t n, bool packed,
                             Factors factors) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * elements;
  if (packed && i + elements <= n) {
    update<elements>(p + i, m + i, v + i, g + i, copy == nullptr ? nullptr : copy + i, factors);
    return;
  }
  for (int64_t j = i; j < i + elements && j < n; ++j)
    update<1>(p + j, m + j, v + j, g + j, copy == nullptr ? nullptr : copy + j, factors);
}

}  // namespace

void adamw(GpuStream stream, float* p, float* m, float* v, const float* g, bf16* copy, int64_t n,
           const AdamWSettings& settings) {
  if (n == 0) return;
  const auto correction = [&](double beta) {
    return static_cast<float>(1 / (1 - std::pow(beta, static_cast<double>(settings.step))));
  };
  const Factors factors = {static_cast<float>(settings.lr),
                           static_cast<float>(settings.beta1),
                           static_cast<float>(settings.beta2),
                           static_cast<float>(settings.eps),
                           static_cast<float>(settings.weight_decay),
                           static_cast<float>(settings.gradient_scale),
                           correction(settings.beta1),
                           correction(settings.beta2)};
  const bool packed = packs<float>({p, m, v, g}, {}) && reinterpret_cast<uintptr_t>(copy) % 8 == 0;
  adamw_kernel<<<grid(ceil_div(n, int64_t{threads} * elements)), threads, 0, stream>>>(p, m, v, g, copy, n,
                                                                                       packed, factors);
  check_launch("adamw");
}

}  // namespace kata::cuda
