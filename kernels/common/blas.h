// Matrix products through cuBLASLt, row-major, with fp32 accumulation.
#pragma once

#include <cuda_runtime.h>
#include <library_types.h>

#include "base/dtype.h"
#include "base/gpu.h"

namespace kata::cuda {

template <class T>
inline constexpr cudaDataType_t blas_type = std::is_same_v<T, bf16> ? CUDA_R_16BF : CUDA_R_32F;

// d [rows, columns] = a b (+ c), where a is [rows, inner], or [inner, rows] if transposed, and b is
// [inner, columns], or [columns, inner] if transposed. Strides are elements from row to row.
struct Product {
  int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0, d_stride = 0;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;  // of a and b; of c and d
};

// c may be null, or d. Nothing is done where d is empty or, with c = d, where there is nothing to add. The
// algorithm is cuBLASLt's first choice for the problem, looked up once.
void product(const Gpu& gpu, const Product& problem, const void* a, const void* b, const void* c, void* d);

}  // namespace kata::cuda
