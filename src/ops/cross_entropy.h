// Next-token loss with the output projection inside, so that the logits of a batch never exist together.
//
//   z_r = table x_r        loss_r = log sum_c exp(z_rc) - z_r[target_r]
//   dz_rc = scale (softmax(z_r)_c - [c = target_r])      dx_r = table^T dz_r      dtable += sum_r dz_r x_r^T
//
// Rows with target -1 are unlabelled: loss 0, prediction -1, dx 0, and no work; labelled rows are gathered
// into tiles of cross_entropy_tile_rows(vocab) rows, and one tile of logits is all that is held. The losses
// are not scaled. A logit that is NaN or +inf makes that row's loss NaN. Nothing may overlap.
//
// On a GPU losses and dtable are Wide, and the host does not know how many rows are labelled: it queues the
// tiles of `labelled_bound` rows, those beyond the labelled ones being zeros. More labelled rows than that
// make every loss NaN.
#pragma once

#include <algorithm>

#include "ops/matmul.h"

namespace kata {

struct CrossEntropySize {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocab = 0;
};

namespace cpu {
int64_t cross_entropy_tile_rows(const CrossEntropySize& size);

template <class T>
struct CrossEntropyScratch {
  int64_t* labelled = nullptr;  // [rows], indices of labelled rows
  T* logits = nullptr;          // [tile rows, vocab]
  T* x = nullptr;               // [tile rows, width], gathered
  T* dx = nullptr;              // [tile rows, width], to be scattered; backward only
  T* partial = nullptr;         // [matmul_partials, vocab, width]; backward only
};
// predictions may be null.
template <class T>
void cross_entropy_forward(T* losses, int32_t* predictions, const T* x, const T* table,
                           const int32_t* targets, const CrossEntropyScratch<T>& scratch,
                           const CrossEntropySize& size);
template <class T>
void cross_entropy_backward(T* losses, T* dx, T* dtable, const T* x, const T* table, const int32_t* targets,
                            T scale, const CrossEntropyScratch<T>& scratch, const CrossEntropySize& size);
}  // namespace cpu

namespace cuda {
int64_t cross_entropy_tile_rows(int64_t labelled_bound, const CrossEntropySize& size);

template <class T>
struct CrossEntropyScratch {
  int32_t* labelled = nullptr;  // [rows + 1]: indices of labelled rows, then -1; last their number
  T* logits = nullptr;          // [tile rows, vocab]
  T* x = nullptr;               // [tile rows, width], gathered
  T* dx = nullptr;              // [tile rows, width], to be scattered; null in the forward
};
// dx and dtable are null in the forward, predictions in the backward or where they are not wanted.
template <class T>
void cross_entropy(const Gpu& gpu, Wide<T>* losses, int32_t* predictions, T* dx, Wide<T>* dtable, const T* x,
                   const T* table, const int32_t* targets, float scale, int64_t labelled_bound,
                   const CrossEntropyScratch<T>& scratch, const CrossEntropySize& size);
}  // namespace cuda

inline CrossEntropySize cross_entropy_size(const char* op, const Tensor& losses, const Tensor& x,
                                           const Tensor& table, const Tensor& targets) {
  KATA_CHECK(x.rank() == 2 && table.rank() == 2 && x.dim(1) == table.dim(1) && table.dim(0) > 0,
             "{}: x {} and table {}", op, x.shape().str(), table.shape().str());
  require(op, "x", x, x.shape(), x.dtype());
  require(op, "table", table, table.shape(), x.dtype());
  require(op, "losses", losses, {x.dim(0)}, wide(x.dtype()));
  require(op, "targets", targets, {x.dim(0)}, DType::i32);
  return {x.dim(0), x.dim(1), table.dim(0)};
}

// Scratch is sized by the rows, labelled or not, so that it can be planned.
struct CrossEntropyTensors {
  Tensor labelled, logits, x, dx, partial;

  CrossEntropyTensors(Context& ctx, DType dtype, const CrossEntropySize& size, int64_t bound, bool backward) {
    const int64_t tile = by_device(
        ctx, [&] { return cpu::cross_entropy_tile_rows(size); },
        [&] { return cuda::cross_entropy_tile_rows(bound, size); });
    const bool cpu = ctx.device == Device::cpu;
    labelled = cpu ? ctx.arena.take("cross_entropy labelled rows", DType::i64, {size.rows})
                   : ctx.arena.take("cross_entropy labelled rows", DType::i32, {size.rows + 1});
    logits = ctx.arena.take("cross_entropy logits tile", dtype, {tile, size.vocab});
    x = ctx.arena.take("cross_entropy x tile", dtype, {tile, size.width});
    if (!backward) return;
    dx = ctx.arena.take("cross_entropy dx tile", dtype, {tile, size.width});
    if (!cpu) return;
    const MatmulSize product{tile, size.vocab, size.width, size.width, size.vocab};
    partial = ctx.arena.take("cross_entropy dtable partials", dtype,
                             {cpu::matmul_partials(product), size.vocab, size.width});
  }
  template <class T>
  cpu::CrossEntropyScratch<T> on_cpu() const {
    return {labelled.as<int64_t>(), logits.as<T>(), x.as<T>(), data_or_null<T>(dx), data_or_null<T>(partial)};
  }
  template <class T>
  cuda::CrossEntropyScratch<T> on_gpu() const {
    return {labelled.as<int32_t>(), logits.as<T>(), x.as<T>(), data_or_null<T>(dx)};
  }
};

// labelled_bound: at most so many rows are labelled; -1: no such bound is known.
inline int64_t bounded(int64_t labelled_bound, const CrossEntropySize& size) {
  return labelled_bound < 0 ? size.rows : std::min(labelled_bound, size.rows);
}

// losses: [rows]; predictions: int32 [rows] or undefined, the id of the largest logit (the lowest such id);
// x: [rows, width]; table: [vocab, width]; targets: int32 [rows] in [-1, vocab).
inline void cross_entropy_forward(Context& ctx, const Tensor& losses, const Tensor& predictions,
                                  const Tensor& x, const Tensor& table, const Tensor& targets,
                                  int64_t labelled_bound = -1) {
  const CrossEntropySize size = cross_entropy_size("cross_entropy", losses, x, table, targets);
  if (predictions.defined()) require("cross_entropy", "predictions", predictions, {size.rows}, DType::i32);
  const int64_t bound = bounded(labelled_bound, size);
  Arena::Scope scope(ctx.arena);
  const CrossEntropyTensors scratch(ctx, x.dtype(), size, bound, false);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::cross_entropy_forward<T>(losses.as<T>(), data_or_null<int32_t>(predictions), x.as<T>(),
                                      table.as<T>(), targets.as<int32_t>(), scratch.on_cpu<T>(), size);
      },
      [&]<class T>() {
        cuda::cross_entropy<T>(*ctx.gpu, losses.as<Wide<T>>(), data_or_null<int32_t>(predictions), nullptr,
                               nullptr, x.as<T>(), table.as<T>(), targets.as<int32_t>(), 0, bound,
                               scratch.on_gpu<T>(), size);
      });
}

// Loss and gradients in one pass. dx: [rows, width], overwritten; dtable: [vocab, width], Wide, added to;
// both times scale.
inline void cross_entropy_backward(Context& ctx, const Tensor& losses, const Tensor& dx, const Tensor& dtable,
                                   const Tensor& x, const Tensor& table, const Tensor& targets, double scale,
                                   int64_t labelled_bound = -1) {
  const CrossEntropySize size = cross_entropy_size("cross_entropy_backward", losses, x, table, targets);
  require("cross_entropy_backward", "dx", dx, x.shape(), x.dtype());
  require("cross_entropy_backward", "dtable", dtable, table.shape(), wide(x.dtype()));
  const int64_t bound = bounded(labelled_bound, size);
  Arena::Scope scope(ctx.arena);
  const CrossEntropyTensors scratch(ctx, x.dtype(), size, bound, true);
  if (ctx.planning()) return;
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::cross_entropy_backward<T>(losses.as<T>(), dx.as<T>(), dtable.as<T>(), x.as<T>(), table.as<T>(),
                                       targets.as<int32_t>(), static_cast<T>(scale), scratch.on_cpu<T>(),
                                       size);
      },
      [&]<class T>() {
        cuda::cross_entropy<T>(*ctx.gpu, losses.as<Wide<T>>(), nullptr, dx.as<T>(), dtable.as<Wide<T>>(),
                               x.as<T>(), table.as<T>(), targets.as<int32_t>(), static_cast<float>(scale),
                               bound, scratch.on_gpu<T>(), size);
      });
}

}  // namespace kata
