// Rotary positions on interleaved pairs (2i, 2i+1), in place (MATH: layers).
//
//   a = position * base^(-2 f(i)/E)
//   (x_2i, x_2i+1) <- (x_2i cos a - x_2i+1 sin a, x_2i sin a + x_2i+1 cos a)
//
// with E = width / groups: every group of a head has the same frequencies, and its first `rotated` elements
// turn. f(i) = i, or the first pair of those that share a frequency: with quaternions both pairs of one do,
// which is a product with a complex number from the left, so that it passes the products from the right that
// make up the score. The position is that of the token in its document (ops/documents.h). The rotation is
// orthogonal, so the backward is the rotation by -a applied to the gradient. Angles are computed in double at
// any position; the table holds their cosine and sine, Wide.
#pragma once

#include "ops/documents.h"

namespace kata {

struct RopeSpec {
  int64_t width = 0;    // elements of a head
  int64_t groups = 1;   // groups with the same frequencies: 1 for every map but psd_sum
  int64_t rotated = 0;  // even; leading elements of a group that turn: width / groups, except that lorentz
                        // rotates the largest even number <= width - 1
  double base = 10000;
  int64_t pairs_per_frequency = 1;  // neighbouring pairs that turn alike: 2 for quaternionic

  constexpr int64_t group_width() const { return width / groups; }
  constexpr int64_t pairs() const { return rotated / 2; }
};

struct RopeSize {
  int64_t batch = 0, time = 0, heads = 0;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;  // elements
  int64_t positions = 0;                                        // rows of the table
};

namespace cpu {
// table: [positions, pairs, 2] = (cos, sin). Row r is position start + r, or positions[r] where not null.
template <class T>
void rope_table(T* table, const int64_t* positions, int64_t start, int64_t count, const RopeSpec& spec);
// direction: +1 forward, -1 backward.
template <class T>
void rope_rotate(T* x, const T* table, int direction, const Starts& starts, const RopeSpec& spec,
                 const RopeSize& size);
}  // namespace cpu

namespace cuda {
void rope_table(GpuStream stream, float* table, const int64_t* positions, int64_t start, int64_t count,
                const RopeSpec& spec);
template <class T>
void rope_rotate(GpuStream stream, T* x, const Wide<T>* table, int direction, const Starts& starts,
                 const RopeSpec& spec, const RopeSize& size);
}  // namespace cuda

inline void check_rope(const char* op, const Tensor& table, const RopeSpec& spec) {
  KATA_CHECK(spec.groups >= 1 && spec.width % spec.groups == 0 && spec.rotated % 2 == 0 &&
                 spec.rotated >= 0 && spec.rotated <= spec.group_width() && spec.base > 0 &&
                 spec.pairs_per_frequency >= 1 && spec.pairs() % spec.pairs_per_frequency == 0,
             "{}: width {}, groups {}, rotated {}, base {}, pairs per frequency {}", op, spec.width,
             spec.groups, spec.rotated, spec.base, spec.pairs_per_frequency);
  KATA_CHECK(table.rank() == 3, "{}: table {} must be [time, pairs, 2]", op, table.shape().str());
  require(op, "table", table, {table.dim(0), spec.pairs(), 2}, table.dtype());
}

inline void fill_rope_table(Context& ctx, const Tensor& table, const int64_t* positions, int64_t start,
                            const RopeSpec& spec) {
  by_device(
      ctx,
      [&] {
        dispatch_float(table.dtype(), [&]<class T>() {
          cpu::rope_table<T>(table.as<T>(), positions, start, table.dim(0), spec);
        });
      },
      [&] { cuda::rope_table(ctx.stream(), table.as<float>(), positions, start, table.dim(0), spec); });
}

// table: Wide [time, pairs, 2] for positions start_position, start_position + 1, ...
inline void rope_table(Context& ctx, const Tensor& table, int64_t start_position, const RopeSpec& spec) {
  check_rope("rope_table", table, spec);
  if (ctx.planning()) return;
  fill_rope_table(ctx, table, nullptr, start_position, spec);
}
// table: [rows, pairs, 2] for positions: int64 [rows] (rows of a batch at different places).
inline void rope_table(Context& ctx, const Tensor& table, const Tensor& positions, const RopeSpec& spec) {
  check_rope("rope_table", table, spec);
  require("rope_table", "positions", positions, {table.dim(0)}, DType::i64);
  if (ctx.planning()) return;
  fill_rope_table(ctx, table, positions.as<int64_t>(), 0, spec);
}

inline void rope_rotate(Context& ctx, const char* op, const Tensor& x, const Tensor& table, int direction,
                        const RopeSpec& spec, const Tensor& starts) {
  check_rope(op, table, spec);
  KATA_CHECK(x.rank() == 4 && (starts.defined() || x.dim(1) == table.dim(0)) && x.dim(3) == spec.width &&
                 wide(x.dtype()) == table.dtype(),
             "{}: x {} {} and table {} {}", op, name_of(x.dtype()), x.shape().str(), name_of(table.dtype()),
             table.shape().str());
  require_starts(op, starts, x.dim(0), x.dim(1));
  if (ctx.planning()) return;
  const RopeSize size{x.dim(0), x.dim(1), x.dim(2), x.stride(0), x.stride(1), x.stride(2), table.dim(0)};
  dispatch(
      ctx, x.dtype(),
      [&]<class T>() {
        cpu::rope_rotate<T>(x.as<T>(), table.as<T>(), direction, starts_of(starts), spec, size);
      },
      [&]<class T>() {
        cuda::rope_rotate<T>(ctx.stream(), x.as<T>(), table.as<Wide<T>>(), direction, starts_of(starts), spec,
                             size);
      });
}

// x: [batch, time, heads, width], strided, rotated in place; table: [time, pairs, 2]. With starts
// [batch, time], token t of row b takes row t - starts[b, t] of a table [positions, pairs, 2] of positions 0,
// 1, ...: it must reach the largest position, which lies above time - 1 where a document began before the
// call.
inline void rope_forward(Context& ctx, const Tensor& x, const Tensor& table, const RopeSpec& spec,
                         const Tensor& starts = {}) {
  rope_rotate(ctx, "rope", x, table, 1, spec, starts);
}
// dx: the gradient of the rotated values in, that of the unrotated ones out.
inline void rope_backward(Context& ctx, const Tensor& dx, const Tensor& table, const RopeSpec& spec,
                          const Tensor& starts = {}) {
  rope_rotate(ctx, "rope_backward", dx, table, -1, spec, starts);
}

}  // namespace kata
