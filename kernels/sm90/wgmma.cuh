// Warpgroup matrix products of Hopper: C[64, N] (+)= A[64, 16] B[16, N], bf16 with fp32 accumulators, A in
// registers and B in shared memory.
//
// Fragments, with lane = thread in its warp and r = 16 warp + lane / 4 a row:
//   C: c[4 j + 0, 1] = row r, c[4 j + 2, 3] = row r + 8, columns 8 j + 2 (lane % 4) and the next one
//   A: a[0], a[1] = rows r, r + 8, columns 2 (lane % 4) and the next one; a[2], a[3] the same 8 columns on
// so that the blocks 2 k and 2 k + 1 of a C, rounded, are the k-th A of a product that follows.
//
// B tiles have rows of 64 elements (128 bytes) in the 128-byte swizzle, the first row on a multiple of 1024
// bytes. Not transposed: B[k, n] = tile[n][k]. Transposed: B[k, n] = tile[k][n].
#pragma once

#include <cstdint>

namespace kata::cuda::sm90 {

// Registers of the next products are as the code before left them.
__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// No use of these results moves to before this.
template <int N>
__device__ __forceinline__ void settle(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
template <int G, int N>
__device__ __forceinline__ void settle(float (&c)[G][N]) {
#pragma unroll
  for (int g = 0; g < G; ++g) settle(c[g]);
}
// All but the last `pending` groups are done, those of the given results among them.
template <int pending, class... Results>
__device__ __forceinline__ void wait_products(Results&... results) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  (settle(results), ...);
}

// address: of the tile in shared memory. Units of 16 bytes: eight rows are 64, the swizzle is number 1.
__device__ __forceinline__ uint64_t tile_operand(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | uint64_t{1} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}
constexpr uint64_t columns_16 = 2;  // to add to a tile's operand: 16 columns on
constexpr uint64_t rows_16 = 128;   // 16 rows on

// The registers are zero here and not only inside the stage that adds to them.
template <int N>
__device__ __forceinline__ void clear(float (&c)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(c[i])::"memory");
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Results as the A operands of a product over their columns.
template <int K>
__device__ __forceinline__ void round_tile(uint32_t (&p)[K][4], const float (&s)[8 * K]) {
#pragma unroll
  for (int i = 0; i < 8 * K; i += 2) p[i / 8][i / 2 % 4] = pack_bf16(s[i], s[i + 1]);
}

constexpr float log2_e = 1.4426950408889634f;

// 2^x to 2^-22, at once where exp2f takes four instructions for the sake of subnormal results.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// clang-format off
#define KATA_ACCUMULATORS_8(c, i)                                                                        \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
      "+f"(c[i + 7])

template <int transposed>
__device__ __forceinline__ void multiply(float (&c)[8], const uint32_t (&a)[4], uint64_t b,
                                         int accumulate) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %13, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7"
      "}, {%8, %9, %10, %11}, %12, p, 1, 1, %14;}"
      : KATA_ACCUMULATORS_8(c, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(transposed));
}

template <int transposed>
__device__ __forceinline__ void multiply(float (&c)[16], const uint32_t (&a)[4], uint64_t b,
                                         int accumulate) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;}"
      : KATA_ACCUMULATORS_8(c, 0), KATA_ACCUMULATORS_8(c, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(transposed));
}

template <int transposed>
__device__ __forceinline__ void multiply(float (&c)[32], const uint32_t (&a)[4], uint64_t b,
                                         int accumulate) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
          "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"
      : KATA_ACCUMULATORS_8(c, 0), KATA_ACCUMULATORS_8(c, 8), KATA_ACCUMULATORS_8(c, 16), KATA_ACCUMULATORS_8(c, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(transposed));
}

template <int transposed>
__device__ __forceinline__ void multiply(float (&c)[64], const uint32_t (&a)[4], uint64_t b,
                                         int accumulate) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
          "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
          "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
          "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
          "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;}"
      : KATA_ACCUMULATORS_8(c, 0), KATA_ACCUMULATORS_8(c, 8), KATA_ACCUMULATORS_8(c, 16), KATA_ACCUMULATORS_8(c, 24), KATA_ACCUMULATORS_8(c, 32), KATA_ACCUMULATORS_8(c, 40), KATA_ACCUMULATORS_8(c, 48), KATA_ACCUMULATORS_8(c, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(transposed));
}

#undef KATA_ACCUMULATORS_8
// clang-format on

}  // namespace kata::cuda::sm90
