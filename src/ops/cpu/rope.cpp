#include "ops/rope.h"

#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/row_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_elements = 16384;  // of x, per unit

int64_t block_tokens(int64_t elements_per_token) {
  return ceil_div(block_elements, elements_per_token > 0 ? elements_per_token : 1);
}

}  // namespace

template <class T>
void rope_table(T* table, const int64_t* positions, int64_t start, int64_t count, const RopeSpec& spec) {
  const int64_t pairs = spec.pairs();
  parallel_blocks(count, block_tokens(16 * pairs), [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < pairs; ++i) {
      const int64_t first = i / spec.pairs_per_frequency * spec.pairs_per_frequency;
      const double frequency =
          std::pow(spec.base, -2.0 * static_cast<double>(first) / static_cast<double>(spec.group_width()));
      for (int64_t r = begin; r < end; ++r) {
        const double angle = static_cast<double>(positions ? positions[r] : start + r) * frequency;
        table[(r * pairs + i) * 2] = static_cast<T>(std::cos(angle));
        table[(r * pairs + i) * 2 + 1] = static_cast<T>(std::sin(angle));
      }
    }
  });
}

template <class T>
void rope_rotate(T* x, const T* table, int direction, const Starts& starts, const RopeSpec& spec,
                 const RopeSize& size) {
  const int64_t pairs = spec.pairs(), block = block_tokens(size.heads * spec.width);
  if (pairs == 0) return;
  parallel_blocks(size.batch * size.time, block, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t b = r / size.time, t = r % size.time;
      const int64_t position = t - starts.at(b, t);
      if (position < 0 || position >= size.positions) outside_table(position, size.positions);
      T* token = x + b * size.batch_stride + t * size.token_stride;
      for (int64_t h = 0; h < size.heads; ++h)
        for (int64_t g = 0; g < spec.groups; ++g) {
          T* x_group = token + h * size.head_stride + g * spec.group_width();
          rotate_pairs(x_group, x_group, table + position * pairs * 2, static_cast<T>(direction), pairs);
        }
    }
  });
}

#define KATA_INSTANTIATE(T)                                                           \
  template void rope_table<T>(T*, const int64_t*, int64_t, int64_t, const RopeSpec&); \
  template void rope_rotate<T>(T*, const T*, int, const Starts&, const RopeSpec&, const RopeSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
