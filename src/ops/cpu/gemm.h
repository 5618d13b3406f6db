// Matrix product of one thread on row-major matrices: C = alpha op(A) op(B) + beta C.
//
// The only door to the BLAS. It runs single-threaded always, because a threaded OpenBLAS sums in an order
// that depends on the thread count; callers cut a product into blocks by the shape alone and hand the blocks
// to parallel_for (ops/matmul.h). With beta = 0 the old C is not read, so it may be uninitialised.
#pragma once

#include <cblas.h>
#include <cstdint>
#include <limits>

#include "base/error.h"

namespace kata::cpu {

enum class Op { none, transpose };

namespace detail {

inline void single_threaded_blas() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
}

inline blasint blas_int(int64_t n) {  // OpenBLAS of the distributions counts in 32 bits
  KATA_CHECK(n >= 0 && n <= std::numeric_limits<blasint>::max(), "matrix product dimension {}", n);
  return static_cast<blasint>(n);
}

inline CBLAS_TRANSPOSE cblas_op(Op op) {
  return op == Op::none ? CblasNoTrans : CblasTrans;
}

}  // namespace detail

// The kernels that the BLAS chose for this processor, for reports: "Haswell".
inline const char* blas_core() {
  return openblas_get_corename();
}

// op(A): [m, k], op(B): [k, n], C: [m, n]. lda, ldb, ldc: elements from row to row of A, B, C as stored.
inline void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                 const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  using namespace detail;
  single_threaded_blas();
  cblas_sgemm(CblasRowMajor, cblas_op(op_a), cblas_op(op_b), blas_int(m), blas_int(n), blas_int(k), alpha, a,
              blas_int(lda), b, blas_int(ldb), beta, c, blas_int(ldc));
}
inline void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                 int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  using namespace detail;
  single_threaded_blas();
  cblas_dgemm(CblasRowMajor, cblas_op(op_a), cblas_op(op_b), blas_int(m), blas_int(n), blas_int(k), alpha, a,
              blas_int(lda), b, blas_int(ldb), beta, c, blas_int(ldc));
}

// X = op(A)^-1 X by substitution, A: [m, m] upper triangular with an implied diagonal of ones (what lies on
// and below the diagonal is not read), X: [m, n].
inline void solve_unit_upper(Op op_a, int64_t m, int64_t n, const float* a, int64_t lda, float* x,
                             int64_t ldx) {
  using namespace detail;
  single_threaded_blas();
  cblas_strsm(CblasRowMajor, CblasLeft, CblasUpper, cblas_op(op_a), CblasUnit, blas_int(m), blas_int(n), 1, a,
              blas_int(lda), x, blas_int(ldx));
}
inline void solve_unit_upper(Op op_a, int64_t m, int64_t n, const double* a, int64_t lda, double* x,
                             int64_t ldx) {
  using namespace detail;
  single_threaded_blas();
  cblas_dtrsm(CblasRowMajor, CblasLeft, CblasUpper, cblas_op(op_a), CblasUnit, blas_int(m), blas_int(n), 1, a,
              blas_int(lda), x, blas_int(ldx));
}

// y = A x + beta y, A: [n, k] with rows lda apart: a product with so few rows that packing A would cost more.
inline void gemv(int64_t n, int64_t k, const float* a, int64_t lda, const float* x, float beta, float* y) {
  using namespace detail;
  single_threaded_blas();
  cblas_sgemv(CblasRowMajor, CblasNoTrans, blas_int(n), blas_int(k), 1, a, blas_int(lda), x, 1, beta, y, 1);
}
inline void gemv(int64_t n, int64_t k, const double* a, int64_t lda, const double* x, double beta,
                 double* y) {
  using namespace detail;
  single_threaded_blas();
  cblas_dgemv(CblasRowMajor, CblasNoTrans, blas_int(n), blas_int(k), 1, a, blas_int(lda), x, 1, beta, y, 1);
}

}  // namespace kata::cpu
