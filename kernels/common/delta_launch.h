// Launches of the delta rule's kernels.
#pragma once

#include "kernels/common/chunk_tiles.cuh"
#include "kernels/common/delta_mma.cuh"
#include "kernels/common/launch.h"
#include "ops/token_heads.h"

namespace kata::cuda {

template <class Kernel, class... Args>
void launch_threads(int threads, Kernel kernel, dim3 blocks, int64_t shared, cudaStream_t stream,
                    Args... args) {
  KATA_CHECK(shared <= 163 * 1024, "delta_attention: {} bytes of shared memory", shared);
  allow_shared(kernel, static_cast<size_t>(shared));
  kernel<<<blocks, threads, static_cast<size_t>(shared), stream>>>(args...);
  check_launch("delta_attention_chunked");
}
template <class Kernel, class... Args>
void launch(Kernel kernel, dim3 blocks, int64_t shared, cudaStream_t stream, Args... args) {
  launch_threads(tile_threads, kernel, blocks, shared, stream, args...);
}
template <class Kernel, class... Args>
void launch_mma(Kernel kernel, dim3 blocks, int64_t shared, cudaStream_t stream, Args... args) {
  launch_threads(mma_threads, kernel, blocks, shared, stream, args...);
}
inline dim3 blocks_of(int64_t units, int64_t columns) {
  KATA_CHECK(columns <= 65535, "delta_attention: {} slices of values", columns);
  return {grid(units), static_cast<unsigned>(columns), 1};
}

// Whether rows can be read 16 bytes at a time.
template <class... X>
bool views_pack(const TokenHeads<X>&... views) {
  return (packs<X>({views.data}, {views.batch, views.token, views.head}) && ...);
}

}  // namespace kata::cuda
