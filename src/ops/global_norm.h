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

namespace cuda {
// The same into device memory, and the plain sum; x: float. partial: scratch of [sum_partials(n)].
void global_norm(GpuStream stream, double* norm, const float* x, int64_t n, double* partial);
void sum(GpuStream stream, double* total, const float* x, int64_t n, double* partial);
int64_t sum_partials(int64_t n);
}  // namespace cuda

inline void require_flat(const char* op, const Tensor& x) {
  KATA_CHECK(x.rank() == 1, "{}: x {} must be flat", op, x.shape().str());
  require_contiguous(op, "x", x);
}

// x: [n]. Returns 0 in the planning pass. On the CPU only: a GPU hands nothing back in the middle of its
// work.
inline double global_norm(Context& ctx, const Tensor& x) {
  require_flat("global_norm", x);
  KATA_CHECK(ctx.device == Device::cpu, "global_norm to the host on a GPU");
  Arena::Scope scope(ctx.arena);
  const Tensor partial =
      ctx.arena.take("global_norm partials", DType::f64, {cpu::global_norm_partials(x.dim(0))});
  if (ctx.planning()) return 0;
  double norm = 0;
  dispatch_float(x.dtype(),
                 [&]<class T>() { norm = cpu::global_norm<T>(x.as<T>(), x.dim(0), partial.as<double>()); });
  return norm;
}

// norm: float64 [1] = the length of x, where the context computes.
inline void global_norm_to(Context& ctx, const Tensor& norm, const Tensor& x) {
  require("global_norm", "norm", norm, {1}, DType::f64);
  if (ctx.device == Device::cpu) {
    const double value = global_norm(ctx, x);
    if (!ctx.planning()) *norm.as<double>() = value;
    return;
  }
  require_flat("global_norm", x);
  Arena::Scope scope(ctx.arena);
  const int64_t partials = by_device(
      ctx, [] { return int64_t{0}; }, [&] { return cuda::sum_partials(x.dim(0)); });
  const Tensor partial = ctx.arena.take("global_norm partials", DType::f64, {partials});
  if (ctx.planning()) return;
  by_device(
      ctx, [] {},
      [&] {
        cuda::global_norm(ctx.stream(), norm.as<double>(), x.as<float>(), x.dim(0), partial.as<double>());
      });
}

// total: float64 [1] = the sum of x, float [n], on a GPU.
inline void sum_to(Context& ctx, const Tensor& total, const Tensor& x) {
  require("sum", "total", total, {1}, DType::f64);
  require_flat("sum", x);
  KATA_CHECK(ctx.device == Device::cuda, "a sum in device memory on the CPU");
  Arena::Scope scope(ctx.arena);
  const int64_t partials = by_device(
      ctx, [] { return int64_t{0}; }, [&] { return cuda::sum_partials(x.dim(0)); });
  const Tensor partial = ctx.arena.take("sum partials", DType::f64, {partials});
  if (ctx.planning()) return;
  by_device(
      ctx, [] {},
      [&] { cuda::sum(ctx.stream(), total.as<double>(), x.as<float>(), x.dim(0), partial.as<double>()); });
}

}  // namespace kata
