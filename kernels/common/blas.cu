#include <cstring>
#include <cublasLt.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/common/blas.h"

namespace kata::cuda {

namespace {

void check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    launch_failed("matrix product", doing, cublasLtGetStatusString(status));
}

struct Layout {
  Layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&handle, type, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), stride),
          "describing a matrix");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  cublasLtMatrixLayout_t handle = nullptr;
};

// The largest power of two up to 256 that divides the address.
uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

// A problem made ready. cuBLASLt counts columns first: it computes d^T = b^T a^T, so that its first operand
// is our b.
class Plan {
 public:
  Plan(const Gpu& gpu, const Product& p, bool accumulate, const uint32_t (&alignments)[4])
      : b_(p.in, p.transpose_b ? p.inner : p.columns, p.transpose_b ? p.columns : p.inner, p.b_stride),
        a_(p.in, p.transpose_a ? p.rows : p.inner, p.transpose_a ? p.inner : p.rows, p.a_stride),
        c_(p.out, p.columns, p.rows, p.c_stride),
        d_(p.out, p.columns, p.rows, p.d_stride),
        beta_(accumulate ? 1.0f : 0.0f) {
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
    const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, second);

    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "choosing an algorithm");
    // Partial sums are added in a fixed order, in the workspace.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const size_t workspace = Gpu::workspace_bytes;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
            "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[3]);
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(static_cast<cublasLtHandle_t>(gpu.blas()), operation_, b_.handle,
                                       a_.handle, c_.handle, d_.handle, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check(count == 0 && status == CUBLAS_STATUS_SUCCESS ? CUBLAS_STATUS_NOT_SUPPORTED : status,
          "choosing an algorithm");
    algorithm_ = found.algo;
  }
  ~Plan() { cublasLtMatmulDescDestroy(operation_); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(const Gpu& gpu, const void* a, const void* b, const void* c, void* d) const {
    const float alpha = 1;
    check(cublasLtMatmul(static_cast<cublasLtHandle_t>(gpu.blas()), operation_, &alpha, b, b_.handle, a,
                         a_.handle, &beta_, c, c_.handle, d, d_.handle, &algorithm_, gpu.workspace(),
                         Gpu::workspace_bytes, gpu.stream()),
          "starting it");
  }

 private:
  template <class T>
  static void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
          "describing a product");
  }

  Layout b_, a_, c_, d_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  float beta_;
};

// Everything that the choice of an algorithm depends on.
using Key = std::vector<int64_t>;

std::map<Key, std::unique_ptr<Plan>>& plans() {
  static std::map<Key, std::unique_ptr<Plan>> plans;
  return plans;
}

}  // namespace

void product(const Gpu& gpu, const Product& p, const void* a, const void* b, const void* c, void* d) {
  if (p.rows == 0 || p.columns == 0 || (p.inner == 0 && c == d)) return;
  KATA_CHECK(p.inner > 0, "a product over nothing");
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const void* third = c == nullptr ? d : c;
  const uint32_t alignments[4] = {alignment_of(b), alignment_of(a), alignment_of(third), alignment_of(d)};
  const Key key = {reinterpret_cast<intptr_t>(gpu.blas()),
                   p.rows,
                   p.columns,
                   p.inner,
                   p.transpose_a,
                   p.transpose_b,
                   p.a_stride,
                   p.b_stride,
                   c == nullptr ? p.d_stride : p.c_stride,
                   p.d_stride,
                   p.in,
                   p.out,
                   c != nullptr,
                   alignments[0],
                   alignments[1],
                   alignments[2],
                   alignments[3]};
  std::unique_ptr<Plan>& plan = plans()[key];
  if (!plan) {
    Product described = p;
    if (c == nullptr) described.c_stride = p.d_stride;
    plan = std::make_unique<Plan>(gpu, described, c != nullptr, alignments);
  }
  plan->run(gpu, a, b, third, d);
}

}  // namespace kata::cuda
