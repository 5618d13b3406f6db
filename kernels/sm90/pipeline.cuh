// Copies of tiles into shared memory by the copy engine, and the ring of stages between one warpgroup that
// issues them and those that compute.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/common/launch.h"
#include "kernels/sm90/attention.h"
#include "kernels/sm90/wgmma.cuh"

namespace kata::cuda::sm90 {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Until the phase of this parity is complete. A barrier begins in phase 0, so parity 1 passes at once.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra.uni done;\n"
      "bra.uni again;\n"
      "done: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// The map's box from (token, head, batch) on, swizzled; tokens past the end read as zeros.
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap& map, int token, int head, int batch,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(0), "r"(head), "r"(token), "r"(batch), "r"(barrier)
      : "memory");
}
// 16-byte units, aligned to them.
__device__ __forceinline__ void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

template <int registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// Stages that are filled and emptied in turn. Both sides step through all of them in the same order. In
// shared memory, from a multiple of 1024 bytes on: the stages, then two barriers for each.
template <int stages, int stage_bytes>
struct Ring {
  static_assert(stage_bytes % 1024 == 0);
  static constexpr int bytes = 1024 + stages * stage_bytes + stages * 16;  // with room for the alignment

  uint32_t base;
  int stage = 0;
  uint32_t parity = 0;

  // By all threads of the block; each of `readers` warps releases every stage once.
  __device__ Ring(const void* shared, int readers) : base((shared_address(shared) + 1023) & ~1023u) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < stages; ++s) {
        barrier_init(full(s), 1);
        barrier_init(empty(s), readers);
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
  }

  __device__ uint32_t full(int s) const { return base + stages * stage_bytes + s * 16; }
  __device__ uint32_t empty(int s) const { return full(s) + 8; }
  __device__ uint32_t data() const { return base + stage * stage_bytes; }

  __device__ void wait_empty() const { barrier_wait(empty(stage), parity ^ 1); }
  __device__ void wait_full() const { barrier_wait(full(stage), parity); }
  __device__ void release() const {
    if (threadIdx.x % 32 == 0) barrier_arrive(empty(stage));
  }
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
    asm volatile("" : "+r"(stage), "+r"(parity));  // or the compiler works out many positions ahead
  }
};

// Pieces of work in the order in which blocks take them: sections of heads whose keys and values stay in the
// second-level cache together, inside one the tiles from the longest on.
struct WorkOrder {
  int heads, tiles, section;

  __host__ __device__ int count() const { return heads * tiles; }
  // rank: 0 = a longest tile.
  __device__ void at(int work, int& head, int& rank) const {
    const int first = work / (section * tiles) * section, inside = work - first * tiles;
    const int here = min(section, heads - first);
    rank = inside / here;
    head = first + inside % here;
  }
};

inline WorkOrder work_order(int64_t heads, int64_t tiles, int64_t tokens) {
  KATA_CHECK(heads * tiles < (int64_t{1} << 31));
  const int64_t head_bytes = tokens * 2 * 64 * 2, cached = int64_t{20} << 20;
  const int64_t section = std::min(heads, std::max<int64_t>(1, cached / head_bytes));
  return {static_cast<int>(heads), static_cast<int>(tiles), static_cast<int>(section)};
}

// The driver's function, without linking the driver. Null where there is none.
inline auto tensor_map_encoder() {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) found = nullptr;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return encode;
}

// Boxes of `rows` tokens of one head, 64 wide.
inline CUtensorMap tensor_map(const View<const bf16>& x, const Size& size, int64_t heads, int rows) {
  const auto stride = [](int64_t extent, int64_t elements) {  // bytes; 0 is refused, even where never used
    return static_cast<cuuint64_t>(2 * (extent == 1 ? std::max<int64_t>(elements, 64) : elements));
  };
  const cuuint64_t extents[4] = {64, static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(size.tokens),
                                 static_cast<cuuint64_t>(size.batch)};
  const cuuint64_t strides[3] = {stride(heads, x.head), stride(size.tokens, x.token),
                                 stride(size.batch, x.batch)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(rows), 1}, steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<bf16*>(x.data), extents,
                           strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  KATA_CHECK(result == CUDA_SUCCESS);
  return map;
}

inline int multiprocessors() {
  static const int count = [] {
    int device = 0, n = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return std::max(n, 1);
  }();
  return count;
}

template <class T>
__device__ __forceinline__ T* place(const View<T>& x, int64_t batch, int64_t token, int64_t head) {
  return x.data + batch * x.batch + token * x.token + head * x.head;
}

// The first of the two rows of a warpgroup's 64 that this thread holds parts of.
__device__ __forceinline__ int fragment_row() {
  return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
}

// The A operands of 64 rows of one head, of which this thread holds `row` and row + 8; rows past the end are
// zeros.
__device__ __forceinline__ void load_rows(uint32_t (&a)[4][4], const bf16* x, int64_t token_stride, int row,
                                          int tokens) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
    const bf16* from = x + r * token_stride + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      a[k][half] = r < tokens ? *reinterpret_cast<const uint32_t*>(from + 16 * k) : 0;
      a[k][2 + half] = r < tokens ? *reinterpret_cast<const uint32_t*>(from + 16 * k + 8) : 0;
    }
  }
}

// The results of those rows, whose columns are in G arrays one after the other.
template <int G, int N>
__device__ __forceinline__ void write_rows(const View<bf16>& to, const float (&sum)[G][N], float factor,
                                           int batch, int head, int row, int tokens) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t token = row + 8 * r;
    if (token >= tokens) continue;
    bf16* at = place(to, batch, token, head) + 2 * (threadIdx.x % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int i = 4 * j + 2 * r;
      *reinterpret_cast<uint32_t*>(at + 8 * j) =
          pack_bf16(sum[i / N][i % N] * factor, sum[i / N][i % N + 1] * factor);
    }
  }
}

}  // namespace kata::cuda::sm90
