#include "bench/cases.h"

namespace kata {

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases = {
      {"adamw", bench_adamw},
      {"cross_entropy", bench_cross_entropy},
      {"decay_gate", bench_decay_gate},
      {"delta_attention", bench_delta_attention},
      {"embedding", bench_embedding},
      {"feature_map", bench_feature_map},
      {"global_norm", bench_global_norm},
      {"head_scale", bench_head_scale},
      {"head_sum", bench_head_sum},
      {"l2norm", bench_l2norm},
      {"linear_attention", bench_linear_attention},
      {"matmul", bench_matmul},
      {"mixers", bench_mixers},
      {"qk_norm_rope", bench_qk_norm_rope},
      {"rmsnorm", bench_rmsnorm},
      {"rope", bench_rope},
      {"short_conv", bench_short_conv},
      {"sigmoid", bench_sigmoid},
      {"silu_gate", bench_silu_gate},
      {"softmax_attention", bench_softmax_attention},
      {"swiglu", bench_swiglu},
      {"unit_feature", bench_unit_feature},
  };
  return cases;
}

}  // namespace kata
