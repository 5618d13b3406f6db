// Euclidean length of a flat range: sqrt(sum_i x_i^2), summed in double in fixed blocks.
//
// Non-finite where any element is; float elements cannot overflow the sum.
#pragma once

#include "ops/dispatch.h"

namespace kata {

namespace cpu {
// partial: scratch of [global_norm_partials(n)].
template <class T>
double global_norm(const T* x, int64_t n, double* partial);
int64_t global_norm_partials(int64_t n);
}  // namespace cpu

// x: [n]. Returns 0 in the planning pass.
inline double global_norm(Context& ctx, const Tensor& x) {
  KATA_CHECK(x.rank() == 1, "global_norm: x {} must be flat", x.shape().str());
  require_contiguous("global_norm", "x", x);
  Arena::Scope scope(ctx.arena);
  const Tensor partial =
      ctx.arena.take("global_norm partials", DType::f64, {cpu::global_norm_partials(x.dim(0))});
  if (ctx.planning()) return 0;
  double norm = 0;
  dispatch_float(x.dtype(),
                 [&]<class T>() { norm = cpu::global_norm<T>(x.as<T>(), x.dim(0), partial.as<double>()); });
  return norm;
}

}  // namespace kata
