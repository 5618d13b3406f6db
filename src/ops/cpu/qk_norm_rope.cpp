#include "ops/qk_norm_rope.h"

#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/row_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t forward_elements = 16384;  // of x, per unit
constexpr int64_t backward_tokens = 256;  // per unit; fixed, so that sums do not depend on the thread count

// Where a token begins, and the row of the table that turns it.
template <class T>
struct TokenPlace {
  int64_t x, y;
  const T* turn;
};

template <class T>
TokenPlace<T> place_of(int64_t token, const QkNormRopeInput<T>& in, const QkNormRopeSize& size) {
  const int64_t b = token / size.time, t = token % size.time;
  const int64_t position = t - in.starts.at(b, t);
  if (position < 0 || position >= size.positions) outside_table(position, size.positions);
  return {b * size.x_batch + t * size.x_token, b * size.y_batch + t * size.y_token,
          in.table + position * in.spec.rotated};
}

// One head: y = the rotation of x scale w.
template <class T>
void forward_head(T* y, const T* x, const T* w, T scale, const T* turn, const RopeSpec& spec) {
  const int64_t pairs = spec.pairs(), inside = spec.group_width();
  for (int64_t g = 0; g < spec.groups; ++g, y += inside, x += inside, w += inside) {
#pragma omp simd
    for (int64_t i = 0; i < pairs; ++i) {
      const T a = x[2 * i] * scale * w[2 * i], b = x[2 * i + 1] * scale * w[2 * i + 1];
      const T c = turn[2 * i], s = turn[2 * i + 1];
      y[2 * i] = a * c - b * s;
      y[2 * i + 1] = a * s + b * c;
    }
#pragma omp simd
    for (int64_t j = 2 * pairs; j < inside; ++j) y[j] = x[j] * scale * w[j];
  }
}

// One head: g = dy turned back.
template <class T>
void turn_back(T* g, const T* dy, const T* turn, const RopeSpec& spec) {
  const int64_t inside = spec.group_width();
  for (int64_t at = 0; at < spec.width; at += inside) {
    rotate_pairs(g + at, dy + at, turn, T(-1), spec.pairs());
    for (int64_t j = spec.rotated; j < inside; ++j) g[at + j] = dy[at + j];
  }
}

}  // namespace

template <class T>
void qk_norm_rope_forward(T* y, T* rstd, const T* x, T eps, const QkNormRopeInput<T>& in,
                          const QkNormRopeSize& size) {
  const int64_t heads = size.heads(), width = in.spec.width;
  if (heads == 0) return;
  parallel_blocks(size.tokens(), ceil_div(forward_elements, heads * width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const TokenPlace<T> at = place_of(r, in, size);
      for (int64_t h = 0; h < heads; ++h) {
        const T* xr = x + at.x + h * width;
        const T scale = 1 / std::sqrt(sum_of_squares(xr, width) / static_cast<T>(width) + eps);
        rstd[r * heads + h] = scale;
        forward_head(y + at.y + h * width, xr, h < size.q_heads ? in.q_weight : in.k_weight, scale, at.turn,
                     in.spec);
      }
    }
  });
}

// A row of sums of queries and one of keys per unit.
int64_t qk_norm_rope_partials(const QkNormRopeSize& size) {
  return 2 * ceil_div(size.tokens(), backward_tokens);
}

template <class T>
void qk_norm_rope_backward(T* dx, T* dq_weight, T* dk_weight, const T* dy, const T* x, const T* rstd,
                           T* partial, const QkNormRopeInput<T>& in, const QkNormRopeSize& size) {
  const int64_t heads = size.heads(), width = in.spec.width;
  parallel_blocks(size.tokens(), backward_tokens, [&](int64_t begin, int64_t end) {
    T* sums = partial + begin / backward_tokens * 2 * width;
    for (int64_t j = 0; j < 2 * width; ++j) sums[j] = 0;
    alignas(64) T g[qk_norm_rope_widest];
    for (int64_t r = begin; r < end; ++r) {
      const TokenPlace<T> at = place_of(r, in, size);
      for (int64_t h = 0; h < heads; ++h) {
        const bool query = h < size.q_heads;
        const int64_t at_x = at.x + h * width, at_y = at.y + h * width;
        turn_back(g, dy + at_y, at.turn, in.spec);
        rmsnorm_row_backward(dx + at_x, sums + (query ? 0 : width), g, x + at_x, rstd[r * heads + h],
                             query ? in.q_weight : in.k_weight, false, width);
      }
    }
  });
  for (int64_t b = 0; b < qk_norm_rope_partials(size); b += 2)
    for (int64_t j = 0; j < width; ++j) {
      dq_weight[j] += partial[b * width + j];
      dk_weight[j] += partial[(b + 1) * width + j];
    }
}

#define KATA_INSTANTIATE(T)                                                             \
  template void qk_norm_rope_forward<T>(T*, T*, const T*, T, const QkNormRopeInput<T>&, \
                                        const QkNormRopeSize&);                         \
  template void qk_norm_rope_backward<T>(T*, T*, T*, const T*, const T*, const T*, T*,  \
                                         const QkNormRopeInput<T>&, const QkNormRopeSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
