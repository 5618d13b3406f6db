// Products of 64-row tiles of bf16 on the tensor cores (mma.sync, compute capability 8.0), summed in fp32.
//
// A block has four warps, and warp w has rows 16 w .. 16 w + 15 of every product. A sum of 16 rows and 8 N
// columns is float [N][4]: of lane l, element i of [n] stands in row l / 4 + 8 (i / 2), column
// 8 n + 2 (l % 4) + i % 2.
//
// A number that is not bf16 by its nature is kept as two, high and low: what the first rounding loses is in
// the second, and 16 bits of the fraction are left. The product of two lows is dropped. So a product of split
// factors is as good as a sum of 64 terms in fp32, within a factor of about ten, for three products.
//
// Tiles lie in shared memory with the 16-byte pieces of a row exchanged, so that eight rows of one column of
// pieces are in eight different groups of banks.
#pragma once

#include "kernels/common/elements.cuh"

namespace kata::cuda {

constexpr int mma_threads = 128;

// 64 rows of `width` numbers, 32 or 64; two parts: high, then low.
template <int width, int parts>
struct MmaTile {
  static constexpr int plane = 64 * width;
  static constexpr int bytes = parts * plane * 2;
  bf16* data;

  // Of an element, in each part.
  __device__ static int place(int row, int column) {
    const int turn = width == 64 ? row % 8 : row / 2 % 4;
    return row * width + (column / 8 ^ turn) * 8 + column % 8;
  }
  __device__ bf16* at(int part, int row, int column) const {
    return data + part * plane + place(row, column);
  }
};

__device__ __forceinline__ int mma_lane() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ __forceinline__ int mma_first_row() {
  return static_cast<int>(threadIdx.x) / 32 * 16;
}
// Of element i of a sum, in the tile; column of element i of [n].
__device__ __forceinline__ int mma_row(int i) {
  return mma_first_row() + mma_lane() / 4 + i / 2 * 8;
}
__device__ __forceinline__ int mma_column(int n, int i) {
  return 8 * n + mma_lane() % 4 * 2 + i % 2;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// d += a b: a of 16 x 16, b of 16 x 8.
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four matrices of 8 x 8; lane l names row l % 8 of matrix l / 8. transposed: each one is.
template <bool transposed>
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const bf16* row) {
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// 16 bytes to shared memory in the background; zeros where not `inside` (from must be a valid address even
// so).
__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the last `left` groups have arrived, for this thread.
template <int left>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Two numbers in one word, the first in the lower half, and what rounding took from them.
__device__ __forceinline__ uint32_t bf16_pair(float x, float y) {
  return static_cast<uint32_t>(from_float<bf16>(x).bits) | static_cast<uint32_t>(from_float<bf16>(y).bits)
                                                               << 16;
}
__device__ __forceinline__ float first_of(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float second_of(uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}
struct SplitPair {
  uint32_t high, low;
};
__device__ __forceinline__ SplitPair split(float x, float y) {
  const uint32_t high = bf16_pair(x, y);
  return {high, bf16_pair(x - first_of(high), y - second_of(high))};
}

// This warp's 16 rows of a left factor with 64 columns.
template <int parts>
struct MmaLeft {
  uint32_t at[parts][4][4];  // [part][16 columns][registers of a]
};

// transposed: the factor is the tile's transpose, and the warp's rows are columns of the tile.
template <bool transposed, int width, int parts>
__device__ __forceinline__ void load_left(MmaLeft<parts>& left, const MmaTile<width, parts>& tile) {
  const int lane = mma_lane(), first = mma_first_row();
#pragma unroll
  for (int part = 0; part < parts; ++part)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int row = transposed ? 16 * k + lane % 8 + lane / 16 * 8 : first + lane % 16;
      const int column = transposed ? first + lane / 8 % 2 * 8 : 16 * k + lane / 16 * 8;
      load_matrices<transposed>(left.at[part][k], tile.at(part, row, column));
    }
}
// A sum becomes a left factor.
__device__ __forceinline__ void split_left(MmaLeft<2>& left, const float (&x)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&from)[4] = x[2 * k + i / 2];
      const SplitPair pair = split(from[i % 2 * 2], from[i % 2 * 2 + 1]);
      left.at[0][k][i] = pair.high;
      left.at[1][k][i] = pair.low;
    }
}
// left = columns of x times a factor each.
__device__ __forceinline__ void scale_columns(MmaLeft<2>& left, const MmaLeft<1>& x, const float* factor) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = 16 * k + i / 2 * 8 + mma_lane() % 4 * 2;
      const uint32_t from = x.at[0][k][i];
      const SplitPair pair = split(first_of(from) * factor[column], second_of(from) * factor[column + 1]);
      left.at[0][k][i] = pair.high;
      left.at[1][k][i] = pair.low;
    }
}

// x += left times a right factor of 64 rows and 8 N columns. transposed: the tile is the right factor's
// transpose, its rows are the factor's columns. Only the 16 `k_count` columns of left from 16 k_first on, and
// the columns of x from 8 n_first up to 8 n_end, take part.
template <bool transposed, int k_first, int k_count, int n_first, int n_end, int N, int L, int R, int width>
__device__ __forceinline__ void multiply_part(float (&x)[N][4], const MmaLeft<L>& left,
                                              const MmaTile<width, R>& right) {
  // A product waits for the last one that was added to the same numbers, so up to four take turns.
  constexpr int turns = n_end - n_first < 4 ? n_end - n_first : 4;
  const int lane = mma_lane();
#pragma unroll
  for (int k = k_first; k < k_first + k_count; ++k)
#pragma unroll
    for (int n = n_first; n < n_end; n += turns) {
      uint32_t b[R][turns / 2][4];
#pragma unroll
      for (int part = 0; part < R; ++part)
#pragma unroll
        for (int i = 0; i < turns / 2; ++i) {
          const int first = 8 * n + 16 * i;
          const int row = transposed ? first + lane % 8 + lane / 16 * 8 : 16 * k + lane % 16;
          const int column = transposed ? 16 * k + lane / 8 % 2 * 8 : first + lane / 16 * 8;
          load_matrices<!transposed>(b[part][i], right.at(part, row, column));
        }
      const auto add = [&](const uint32_t(&a)[4], const uint32_t(&from)[turns / 2][4]) {
#pragma unroll
        for (int j = 0; j < turns; ++j) mma(x[n + j], a, from[j / 2][j % 2 * 2], from[j / 2][j % 2 * 2 + 1]);
      };
      add(left.at[0][k], b[0]);
      if constexpr (L == 2) add(left.at[1][k], b[0]);
      if constexpr (R == 2) add(left.at[0][k], b[1]);
    }
}
template <bool transposed, int N, int L, int R, int width>
__device__ __forceinline__ void multiply(float (&x)[N][4], const MmaLeft<L>& left,
                                         const MmaTile<width, R>& right) {
  multiply_part<transposed, 0, 4, 0, N>(x, left, right);
}

// body(element, row, column) for every element of a sum.
template <int N, class Body>
__device__ __forceinline__ void for_each_sum(float (&x)[N][4], Body&& body) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) body(x[n][i], mma_row(i), mma_column(n, i));
}
// body(first element, second element, row, column of the first) for every two neighbours.
template <int N, class Body>
__device__ __forceinline__ void for_each_pair(float (&x)[N][4], Body&& body) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; i += 2) body(x[n][i], x[n][i + 1], mma_row(i), mma_column(n, i));
}
// A sum to a tile of its width.
template <int N>
__device__ __forceinline__ void store_split(const MmaTile<8 * N, 2>& tile, float (&x)[N][4]) {
  for_each_pair(x, [&](float a, float b, int row, int column) {
    const SplitPair pair = split(a, b);
    *reinterpret_cast<uint32_t*>(tile.at(0, row, column)) = pair.high;
    *reinterpret_cast<uint32_t*>(tile.at(1, row, column)) = pair.low;
  });
}
// value(row, column) is a float4 of four columns, for each four of a tile.
template <class Value>
__device__ __forceinline__ void fill_split(const MmaTile<64, 2>& tile, Value&& value) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 16; i += mma_threads) {
    const int row = i / 16, column = i % 16 * 4;
    const float4 x = value(row, column);
    const SplitPair a = split(x.x, x.y), b = split(x.z, x.w);
    *reinterpret_cast<uint2*>(tile.at(0, row, column)) = make_uint2(a.high, b.high);
    *reinterpret_cast<uint2*>(tile.at(1, row, column)) = make_uint2(a.low, b.low);
  }
}

}  // namespace kata::cuda
