// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, 1711.05101), on a flat range.
//
//   g' = gradient_scale g
//   m <- beta1 m + (1 - beta1) g'             v <- beta2 v + (1 - beta2) g'^2
//   p <- p - lr (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay p)
//
// step counts from 1. Ranges without decay (norms, convolutions) are separate calls with weight_decay = 0. On
// a GPU all four are float, and the new p can be written in 16 bits as well, for the layers to read.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct AdamWSettings {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // clipping, accumulation
  int64_t step = 1;           // 1-based
};

namespace cpu {
template <class T>
void adamw(T* p, T* m, T* v, const T* g, int64_t n, const AdamWSettings& settings);
}  // namespace cpu

namespace cuda {
// copy: p rounded, or null.
void adamw(GpuStream stream, float* p, float* m, float* v, const float* g, bf16* copy, int64_t n,
           const AdamWSettings& settings);
}  // namespace cuda

// p, m, v: [n], updated; g: [n], read; copy: bf16 [n], written, or undefined; on the CPU undefined.
inline void adamw(Context& ctx, const Tensor& p, const Tensor& m, const Tensor& v, const Tensor& g,
                  const AdamWSettings& settings, const Tensor& copy = {}) {
  KATA_CHECK(p.rank() == 1 && settings.step >= 1, "adamw: p {}, step {}", p.shape().str(), settings.step);
  require("adamw", "p", p, p.shape(), p.dtype());
  require("adamw", "m", m, p.shape(), p.dtype());
  require("adamw", "v", v, p.shape(), p.dtype());
  require("adamw", "g", g, p.shape(), p.dtype());
  if (copy.defined()) require("adamw", "copy", copy, p.shape(), DType::bf16);
  KATA_CHECK(!copy.defined() || ctx.device == Device::cuda, "adamw: a copy in 16 bits on the CPU");
  if (ctx.planning()) return;
  by_device(
      ctx,
      [&] {
        dispatch_float(p.dtype(), [&]<class T>() {
          cpu::adamw<T>(p.as<T>(), m.as<T>(), v.as<T>(), g.as<T>(), p.dim(0), settings);
        });
      },
      [&] {
        cuda::adamw(ctx.stream(), p.as<float>(), m.as<float>(), v.as<float>(), g.as<float>(),
                    data_or_null<bf16>(copy), p.dim(0), settings);
      });
}

}  // namespace kata
