// What every launcher does before and after a launch.
#pragma once

#include <cuda_runtime.h>

#include "base/error.h"
#include "base/parallel.h"

namespace kata::cuda {

// A launch that the driver refuses is found at once; a fault inside a kernel at the next synchronisation.
inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) launch_failed(kernel, cudaGetErrorName(error), cudaGetErrorString(error));
}

inline unsigned grid(int64_t blocks) {
  KATA_CHECK(blocks > 0 && blocks < (int64_t{1} << 31), "{} thread blocks", blocks);
  return static_cast<unsigned>(blocks);
}

// More than 48 KiB of shared memory must be asked for, once per kernel. A card that has less is refused.
template <class Kernel>
void allow_shared(Kernel kernel, size_t bytes) {
  if (bytes <= 48 * 1024) return;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess)
    launch_failed("shared memory", cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace kata::cuda
