// Matrix products of a warp on the tensor cores (compute capability 8.0 and newer): bf16 operands, fp32 sums.
//
// multiply: C[16, 8] += A[16, 16] B[16, 8]. With g = lane / 4 and t = lane % 4 a lane holds
//   C: c[0], c[1] = C[g][2 t], C[g][2 t + 1]       c[2], c[3] = the same of row g + 8
//   A: a[0] = A[g][2 t, 2 t + 1]  a[1] = A[g + 8][2 t, ..]  a[2] = A[g][2 t + 8, ..]  a[3] = A[g + 8][2 t +
//   8, ..] B: b[0] = B[2 t, 2 t + 1][g]  b[1] = B[2 t + 8, 2 t + 9][g]
// so that the blocks 2 k and 2 k + 1 of a C that is 8 columns a block, rounded, are the k-th A of a product
// over its columns (round_tile).
//
// Tiles in shared memory have rows of W elements in packs of 16 bytes, pack c of row r in place
// c ^ tile_swizzle(r), so that eight neighbouring rows of one pack lie in all banks. load_matrices reads four
// 8 x 8 matrices, the rows of matrix i where lanes 8 i .. 8 i + 7 point; a lane gets [g][2 t, 2 t + 1] of
// each, transposed [2 t, 2 t + 1][g]. Which rows and packs they are (TileLane):
//   rows as B (B[k][n] = tile[n][k]), 16 rows n, 16 columns k:
//     matrix 0: n 0-7, k 0-7   1: n 0-7, k 8-15   2: n 8-15, k 0-7   3: n 8-15, k 8-15
//     = b[0], b[1] of the first 8 n, then of the second
//   columns as B (B[k][n] = tile[k][n]), transposed, 16 rows k, 16 columns n:
//     matrix 0: k 0-7, n 0-7   1: k 8-15, n 0-7   2: k 0-7, n 8-15   3: k 8-15, n 8-15
//     = b[0], b[1] of the first 8 n, then of the second
//   rows as A, 16 rows, 16 columns k: places as for columns, not transposed
//     matrix 0: rows 0-7, k 0-7   1: rows 8-15, k 0-7   2: rows 0-7, k 8-15   3: rows 8-15, k 8-15 = a[0..3]
#pragma once

#include "kernels/common/elements.cuh"

namespace kata::cuda {

// Warps of a block; every kernel on these tiles has as many.
constexpr int mma_warps = 4, mma_threads = 32 * mma_warps;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- copies into shared memory that run beside the arithmetic ---

// 16 bytes, or zeros where `inside` is false; the address must be one that may be read in either case.
__device__ __forceinline__ void copy_16(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(inside ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_4(uint32_t to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(inside ? 4 : 0)
               : "memory");
}
// Until all copies of this thread are done; those of others are seen after a __syncthreads.
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// --- products ---

__device__ __forceinline__ void load_matrices(uint32_t (&x)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&x)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Over 8 columns of A: a0, a1 = rows g and g + 8.
__device__ __forceinline__ void multiply_half(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}

__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// 2^x to 2^-22; 0 where the result would be subnormal.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

template <int M, int N>
__device__ __forceinline__ void clear(float (&c)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
}

// Results as the A operands of a product over their columns.
template <int M, int N>
__device__ __forceinline__ void round_tile(uint32_t (&p)[M][N / 2][4], const float (&c)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int r = 0; r < 2; ++r) p[m][n / 2][n % 2 * 2 + r] = pack_pair(c[m][n][2 * r], c[m][n][2 * r + 1]);
}

// --- tiles ---

template <int W>
__device__ __forceinline__ uint32_t tile_swizzle(int row) {
  return static_cast<uint32_t>(W >= 64 ? row % 8 : row / 2 % 4);
}

// Rows first .. first + rows of one head to a tile; rows from `end` on are zeros. x: the head's token 0.
template <int W, int rows>
__device__ __forceinline__ void copy_rows(uint32_t tile, const bf16* x, int64_t stride, int first, int end) {
  constexpr int packs = W / 8, pass = mma_threads / packs;
  static_assert(rows % pass == 0);
  const int pack = static_cast<int>(threadIdx.x) % packs, row = static_cast<int>(threadIdx.x) / packs;
  const bf16* from = x + (first + row) * stride + 8 * pack;
  const int64_t step = pass * stride;
#pragma unroll
  for (int r = row; r < row + rows; r += pass, from += step) {
    const bool inside = first + r < end;
    copy_16(tile + static_cast<uint32_t>(r * 2 * W) + ((pack ^ tile_swizzle<W>(r)) << 4), inside ? from : x,
            inside);
  }
}

// Where a lane points in a tile; the list above. k: which 16 columns, two packs, whose number changes bits of
// the address that rows do not reach.
template <int W>
struct TileLane {
  uint32_t row, column;
  __device__ __forceinline__ TileLane() {
    const uint32_t lane = threadIdx.x % 32, matrix = lane / 8, r = lane % 8, s = tile_swizzle<W>(r);
    row = (r + 8 * (matrix / 2)) * 2 * W + ((matrix % 2) ^ s) * 16;
    column = (r + 8 * (matrix % 2)) * 2 * W + ((matrix / 2) ^ s) * 16;
  }
  // The addresses are worked out anew from here on: kept from one tile to the next they take registers.
  __device__ __forceinline__ void renew() { asm volatile("" : "+r"(row), "+r"(column)); }
  __device__ __forceinline__ uint32_t rows(int k) const { return row ^ (32u * k); }
  __device__ __forceinline__ uint32_t columns(int k) const { return column ^ (32u * k); }
};

// Left operands of M blocks of 16 rows, W wide: in registers, or in a tile of their own.
template <int W, int M>
struct HeldRows {
  uint32_t x[M][W / 16][4];
  // The lane's first row is `row`. x: the head's token 0; rows from `end` on are zeros.
  __device__ __forceinline__ void load(const bf16* head, int64_t stride, int row, int end) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row + 16 * m + 8 * half;
        const bf16* from = head + (r < end ? r : 0) * stride + 2 * (threadIdx.x % 4);
#pragma unroll
        for (int k = 0; k < W / 16; ++k) {
          x[m][k][half] = r < end ? *reinterpret_cast<const uint32_t*>(from + 16 * k) : 0;
          x[m][k][2 + half] = r < end ? *reinterpret_cast<const uint32_t*>(from + 16 * k + 8) : 0;
        }
      }
  }
  __device__ __forceinline__ void get(uint32_t (&a)[4], const TileLane<W>&, int m, int k) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = x[m][k][i];
  }
};
template <int W, int M>
struct SharedRows {
  uint32_t tile;  // of the warp's first row
  __device__ __forceinline__ void get(uint32_t (&a)[4], const TileLane<W>& lane, int m, int k) const {
    load_matrices(a, tile + lane.columns(k) + m * 32 * W);
  }
};

// c[m][n] = own rows times rows 8 n .. 8 n + 7 of the tile, over the columns of one of G groups.
template <int W, int G, int M, int N, class Own>
__device__ __forceinline__ void dots(float (&c)[M][N][4], const Own& own, const TileLane<W>& lane,
                                     uint32_t tile, int group) {
  constexpr int columns = W / G, steps = columns < 16 ? 1 : columns / 16;
  clear(c);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    const int k = columns < 16 ? group / 2 : group * steps + step, half = group % 2;
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) own.get(a[m], lane, m, k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t b[4];
      load_matrices(b, tile + lane.rows(k) + n * 16 * W);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        if constexpr (columns < 16) {
          multiply_half(c[m][n], a[m][2 * half], a[m][2 * half + 1], half == 0 ? b[0] : b[1]);
          multiply_half(c[m][n + 1], a[m][2 * half], a[m][2 * half + 1], half == 0 ? b[2] : b[3]);
        } else {
          multiply(c[m][n], a[m], b[0], b[1]);
          multiply(c[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
}

// c[m][n] += p[m], whose columns are 16 K rows of the tile, times columns 8 n .. 8 n + 7 of it, for the
// columns of one of G groups.
template <int W, int G, int M, int K>
__device__ __forceinline__ void add_rows(float (&c)[M][W / 8][4], const uint32_t (&p)[M][K][4],
                                         const TileLane<W>& lane, uint32_t tile, int group) {
  constexpr int blocks = W / G / 8;
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int i = 0; i < blocks; i += 2) {
      const int n = group * blocks + i;
      uint32_t b[4];
      load_transposed(b, tile + lane.columns(n / 2) + k * 32 * W);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        if constexpr (blocks == 1) {
          multiply(c[m][n], p[m][k], n % 2 == 0 ? b[0] : b[2], n % 2 == 0 ? b[1] : b[3]);
        } else {
          multiply(c[m][n], p[m][k], b[0], b[1]);
          multiply(c[m][n + 1], p[m][k], b[2], b[3]);
        }
      }
    }
}

}  // namespace kata::cuda
