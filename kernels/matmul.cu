// The three products of a linear map, through cuBLASLt (kernels/common/blas.h).
//
// Floor: 2 m n k operations at the rate of the tensor cores, or reading and writing each matrix once.
#include "kernels/common/blas.h"
#include "ops/matmul.h"

namespace kata::cuda {

template <class T>
void matmul_forward(const Gpu& gpu, T* y, const T* x, const T* w, const T* residual, int64_t residual_stride,
                    const MatmulSize& size) {
  const Product p = {size.m, size.n,          size.k,        false,        true,        size.x_stride,
                     size.k, residual_stride, size.y_stride, blas_type<T>, blas_type<T>};
  product(gpu, p, x, w, residual, y);
}

void matmul_wide(const Gpu& gpu, float* y, const bf16* x, const bf16* w, const MatmulSize& size) {
  const Product p = {size.m, size.n, size.k,        false,           true,      size.x_stride,
                     size.k, 0,      size.y_stride, blas_type<bf16>, CUDA_R_32F};
  product(gpu, p, x, w, nullptr, y);
}

template <class T>
void matmul_backward_input(const Gpu& gpu, T* dx, const T* dy, const T* w, bool accumulate,
                           const MatmulSize& size) {
  const Product p = {size.m, size.k,        size.n,        false,        false,       size.y_stride,
                     size.k, size.x_stride, size.x_stride, blas_type<T>, blas_type<T>};
  product(gpu, p, dy, w, accumulate ? dx : nullptr, dx);
}

template <class T>
void matmul_backward_weight(const Gpu& gpu, Wide<T>* dw, const T* dy, const T* x, const MatmulSize& size) {
  const Product p = {size.n,        size.k, size.m, true,         false,     size.y_stride,
                     size.x_stride, size.k, size.k, blas_type<T>, CUDA_R_32F};
  product(gpu, p, dy, x, dw, dw);
}

template void matmul_forward<float>(const Gpu&, float*, const float*, const float*, const float*, int64_t,
                                    const MatmulSize&);
template void matmul_forward<bf16>(const Gpu&, bf16*, const bf16*, const bf16*, const bf16*, int64_t,
                                   const MatmulSize&);
template void matmul_backward_input<float>(const Gpu&, float*, const float*, const float*, bool,
                                           const MatmulSize&);
template void matmul_backward_input<bf16>(const Gpu&, bf16*, const bf16*, const bf16*, bool,
                                          const MatmulSize&);
template void matmul_backward_weight<float>(const Gpu&, float*, const float*, const float*,
                                            const MatmulSize&);
template void matmul_backward_weight<bf16>(const Gpu&, float*, const bf16*, const bf16*, const MatmulSize&);

}  // namespace kata::cuda
