// Rows shared out to groups of lanes.
#pragma once

#include "kernels/common/elements.cuh"

namespace kata::cuda {

// Where a row begins in x (and dx) and in y (and dy): groups of `inner` rows, a stride apart.
struct RowPlace {
  int64_t x, y;
};
template <class Size>
__device__ __forceinline__ RowPlace row_place(int64_t row, const Size& size) {
  const int64_t group = row / size.inner, inside = row % size.inner * size.width;
  return {group * size.x_stride + inside, group * size.y_stride + inside};
}

// f.template operator()<N, lanes>(): elements of an access, and the lanes that have a row of this width.
template <class T, class F>
void with_lanes(bool packed, int64_t width, F&& f) {
  constexpr int full = full_pack<T>;
  if (!packed) return f.template operator()<1, 32>();
  if (width <= 4 * full) return f.template operator()<full, 4>();
  if (width <= 8 * full) return f.template operator()<full, 8>();
  if (width <= 16 * full) return f.template operator()<full, 16>();
  return f.template operator()<full, 32>();
}

// f.template operator()<N>(): 16-byte accesses, or one element at a time.
template <class T, class F>
void with_pack(bool packed, F&& f) {
  if (packed) return f.template operator()<full_pack<T>>();
  return f.template operator()<1>();
}

}  // namespace kata::cuda
