// Every head times a number of its own (Mamba-2, MATH 5: dt_t folds into x; the skip D x).
//
//   y_rh: = s_rh x_rh:  (+ y_rh: when accumulating)
//   dx_rh: (+)= s_rh dy_rh:        ds_rh = <dy_rh, x_rh>
//
// s and ds are Wide. s is [rows, heads], one per token, and ds is overwritten; or [heads], a parameter, and
// ds_h += sum_r. Rows may be strided (a part of a fused projection is a view); the heads of a row are
// contiguous. Aliasing: y may be x, unless a backward pass follows (it reads x), and dx may be dy; not when
// accumulating.
#pragma once

#include "ops/dispatch.h"

namespace kata {

struct HeadScaleSize {
  int64_t rows = 0, heads = 0, width = 0;
  bool per_token = false;  // s is [rows, heads], else [heads]
  // Elements from row to row: of x, of y and dy, of dx.
  int64_t x_stride = 0, y_stride = 0, dx_stride = 0;
};

namespace cpu {
template <class T>
void head_scale_forward(T* y, const T* s, const T* x, bool accumulate, const HeadScaleSize& size);
// partial: scratch of [head_scale_partials(size), heads], null when per_token.
template <class T>
void head_scale_backward(T* dx, T* ds, const T* dy, const T* s, const T* x, T* partial, bool accumulate,
                         const HeadScaleSize& size);
int64_t head_scale_partials(const HeadScaleSize& size);
}  // namespace cpu

namespace cuda {
template <class T>
void head_scale_forward(GpuStream stream, T* y, const Wide<T>* s, const T* x, bool accumulate,
                        const HeadScaleSize& size);
template <class T>
void head_scale_backward(GpuStream stream, T* dx, Wide<T>* ds, const T* dy, const Wide<T>* s, const T* x,
                         Wide<T>* partial, bool accumulate, const HeadScaleSize& size);
int64_t head_scale_partials(const HeadScaleSize& size);
}  // namespace cuda

inline HeadScaleSize head_scale_size(const char* op, const Tensor& y, const Tensor& s, const Tensor& x) {
  KATA_CHECK(x.rank() == 3 && x.stride(1) == x.dim(2),
             "{}: x {} must be [rows, heads, width], heads contiguous", op, x.shape().str());
  require_shape(op, "y", y, x.shape(), x.dtype());
  KATA_CHECK(y.stride(1) == y.dim(2), "{}: the heads of y {} must be contiguous", op, y.shape().str());
  const bool per_token = s.rank() == 2;
  require(op, "s", s, per_token ? Shape{x.dim(0), x.dim(1)} : Shape{x.dim(1)}, wide(x.dtype()));
  return {x.dim(0), x.dim(1), x.dim(2), per_token, x.stride(0), y.stride(0), 0};
}

// y, x: [rows, heads, width]; s: [rows, heads] or [heads].
inline void head_scale_forward(Context& ctx, const Tensor& y, const Tensor& s, const Tensor& x,
                               bool accumulate) {
  const HeadScaleSize size = head_scale_size("head_scale", y, s, x);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() { cpu::head_scale_forward<T>(y.as<T>(), s.as<T>(), x.as<T>(), accumulate, size); },
      [&]<class T>() {
        cuda::head_scale_forward<T>(ctx.stream(), y.as<T>(), s.as<Wide<T>>(), x.as<T>(), accumulate, size);
      });
}

// dx as x, its rows strided freely; ds as s. accumulate is for dx alone.
inline void head_scale_backward(Context& ctx, const Tensor& dx, const Tensor& ds, const Tensor& dy,
                                const Tensor& s, const Tensor& x, bool accumulate) {
  const char* op = "head_scale_backward";
  HeadScaleSize size = head_scale_size(op, dy, s, x);
  require_shape(op, "dx", dx, x.shape(), x.dtype());
  KATA_CHECK(dx.stride(1) == dx.dim(2), "{}: the heads of dx {} must be contiguous", op, dx.shape().str());
  require(op, "ds", ds, s.shape(), wide(x.dtype()));
  size.dx_stride = dx.stride(0);
  Arena::Scope scope(ctx.arena);
  Tensor partial;
  if (!size.per_token) {
    const int64_t partials = by_device(
        ctx, [&] { return cpu::head_scale_partials(size); }, [&] { return cuda::head_scale_partials(size); });
    partial = ctx.arena.take("head_scale ds partials", wide(x.dtype()), {partials, size.heads});
  }
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::head_scale_backward<T>(dx.as<T>(), ds.as<T>(), dy.as<T>(), s.as<T>(), x.as<T>(),
                                    data_or_null<T>(partial), accumulate, size);
      },
      [&]<class T>() {
        cuda::head_scale_backward<T>(ctx.stream(), dx.as<T>(), ds.as<Wide<T>>(), dy.as<T>(), s.as<Wide<T>>(),
                                     x.as<T>(), data_or_null<Wide<T>>(partial), accumulate, size);
      });
}

}  // namespace kata
