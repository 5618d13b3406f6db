#include "bench/cases.h"

namespace kata {

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases = {
      {"adamw", bench_adamw},
      {"cross_entropy", bench_cross_entropy},
      {"embedding", bench_embedding},
      {"feature_map", bench_feature_map},
      {"global_norm", bench_global_norm},
      {"l2norm", bench_l2norm},
      {"linear_attention", bench_linear_attention},
      {"matmul", bench_matmul},
      {"rmsnorm", bench_rmsnorm},
      {"rope", bench_rope},
      {"short_conv", bench_short_conv},
      {"softmax_attention", bench_softmax_attention},
      {"swiglu", bench_swiglu},
  };
  return cases;
}

}  // namespace kata
