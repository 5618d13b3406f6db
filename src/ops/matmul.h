// Linear map without bias; a weight is stored [outputs, inputs].
//
//   y = x w^T (+ residual)         dx (+)= dy w         dw += dy^T x
//
// x, y, dx, dy and the residual may be column views (row stride above the width); w and dw are contiguous.
// Aliasing: the residual may be y. Nothing else may overlap.
//
// Results do not depend on the thread count: on the CPU a product is cut into blocks by its shape alone, each
// block is one single-threaded gemm, and partial sums of dw are added in the order of their blocks.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct MatmulSize {
  int64_t m = 0;         // rows (tokens)
  int64_t n = 0;         // outputs
  int64_t k = 0;         // inputs
  int64_t x_stride = 0;  // elements from row to row of x (or dx)
  int64_t y_stride = 0;  // elements from row to row of y (or dy)
};

namespace cpu {
// residual may be null; its rows lie residual_stride apart. transposed: scratch [k, n] where
// matmul_transposes, else null (null is always right, and slower).
template <class T>
void matmul_forward(T* y, const T* x, const T* w, const T* residual, int64_t residual_stride, T* transposed,
                    const MatmulSize& size);
bool matmul_transposes(const MatmulSize& size);
template <class T>
void matmul_backward_input(T* dx, const T* dy, const T* w, bool accumulate, const MatmulSize& size);
// partial: scratch of [matmul_partials(size), n, k]; the number does not fall as m grows.
template <class T>
void matmul_backward_weight(T* dw, const T* dy, const T* x, T* partial, const MatmulSize& size);
int64_t matmul_partials(const MatmulSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void matmul_forward(const Gpu& gpu, T* y, const T* x, const T* w, const T* residual, int64_t residual_stride,
                    const MatmulSize& size);
void matmul_wide(const Gpu& gpu, float* y, const bf16* x, const bf16* w, const MatmulSize& size);
template <class T>
void matmul_backward_input(const Gpu& gpu, T* dx, const T* dy, const T* w, bool accumulate,
                           const MatmulSize& size);
template <class T>
void matmul_backward_weight(const Gpu& gpu, Wide<T>* dw, const T* dy, const T* x, const MatmulSize& size);
}  // namespace cuda

// w_type: the weight's, or its gradient's.
inline MatmulSize matmul_size(const char* op, const Tensor& y, const Tensor& x, const Tensor& w,
                              DType w_type) {
  KATA_CHECK(y.rank() == 2 && x.rank() == 2 && w.rank() == 2 && y.dim(0) == x.dim(0) &&
                 y.dim(1) == w.dim(0) && x.dim(1) == w.dim(1),
             "{}: y {} = x {} times w {} transposed", op, y.shape().str(), x.shape().str(), w.shape().str());
  KATA_CHECK(y.dtype() == x.dtype() && w.dtype() == w_type, "{}: types {}, {} and {}", op, name_of(y.dtype()),
             name_of(x.dtype()), name_of(w.dtype()));
  require_contiguous(op, "w", w);
  KATA_CHECK(w.numel() > 0, "{}: empty weight {}", op, w.shape().str());
  return {x.dim(0), w.dim(0), w.dim(1), x.stride(0), y.stride(0)};
}

// y: [m, n]; x: [m, k]; w: [n, k]; residual: [m, n] or undefined, may be y.
inline void matmul_forward(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& w,
                           const Tensor& residual = Tensor()) {
  const MatmulSize size = matmul_size("matmul", y, x, w, x.dtype());
  if (residual.defined()) require_shape("matmul", "residual", residual, y.shape(), y.dtype());
  Arena::Scope scope(ctx.arena);
  Tensor transposed;
  if (ctx.device == Device::cpu && cpu::matmul_transposes(size))
    transposed = ctx.arena.take("matmul w transposed", w.dtype(), {size.k, size.n});
  if (ctx.planning()) return;
  const int64_t residual_stride = residual.defined() ? residual.stride(0) : 0;
  dispatch(
      ctx, y.dtype(),
      [&]<class T>() {
        cpu::matmul_forward<T>(y.as<T>(), x.as<T>(), w.as<T>(), data_or_null<T>(residual), residual_stride,
                               data_or_null<T>(transposed), size);
      },
      [&]<class T>() {
        cuda::matmul_forward<T>(*ctx.gpu, y.as<T>(), x.as<T>(), w.as<T>(), data_or_null<T>(residual),
                                residual_stride, size);
      });
}

// y Wide: for results that are read as they are, such as logits.
inline void matmul_wide(Context& ctx, const Tensor& y, const Tensor& x, const Tensor& w) {
  if (y.dtype() == x.dtype()) return matmul_forward(ctx, y, x, w);
  const Shape out{x.dim(0), w.dim(0)};
  require("matmul_wide", "y", y, out, wide(x.dtype()));
  const MatmulSize size = matmul_size("matmul_wide", Tensor(nullptr, x.dtype(), out), x, w, x.dtype());
  if (ctx.planning()) return;
  by_device(
      ctx, [&] { KATA_CHECK(false, "matmul_wide: {} on the CPU", name_of(x.dtype())); },
      [&] { cuda::matmul_wide(*ctx.gpu, y.as<float>(), x.as<bf16>(), w.as<bf16>(), size); });
}

// dx: [m, k] = or, with accumulate, +=; dy: [m, n]; w: [n, k].
inline void matmul_backward_input(Context& ctx, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  bool accumulate) {
  const MatmulSize size = matmul_size("matmul_backward_input", dy, dx, w, dx.dtype());
  if (ctx.planning()) return;
  dispatch(
      ctx, dx.dtype(),
      [&]<class T>() { cpu::matmul_backward_input<T>(dx.as<T>(), dy.as<T>(), w.as<T>(), accumulate, size); },
      [&]<class T>() {
        cuda::matmul_backward_input<T>(*ctx.gpu, dx.as<T>(), dy.as<T>(), w.as<T>(), accumulate, size);
      });
}

// dw: [n, k], Wide, added to; dy: [m, n]; x: [m, k].
inline void matmul_backward_weight(Context& ctx, const Tensor& dw, const Tensor& dy, const Tensor& x) {
  const MatmulSize size = matmul_size("matmul_backward_weight", dy, x, dw, wide(x.dtype()));
  Arena::Scope scope(ctx.arena);
  Tensor partial;
  if (ctx.device == Device::cpu)
    partial = ctx.arena.take("matmul dw partials", dw.dtype(), {cpu::matmul_partials(size), size.n, size.k});
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::matmul_backward_weight<T>(dw.as<T>(), dy.as<T>(), x.as<T>(), partial.as<T>(), size);
      },
      [&]<class T>() {
        cuda::matmul_backward_weight<T>(*ctx.gpu, dw.as<Wide<T>>(), dy.as<T>(), x.as<T>(), size);
      });
}

}  // namespace kata
