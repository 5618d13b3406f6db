// One function per op, and one for the mixers side by side; bench_cases() lists them.
#pragma once

#include "bench/bench.h"

namespace kata {

void bench_adamw(Bench& bench);
void bench_cross_entropy(Bench& bench);
void bench_decay_gate(Bench& bench);
void bench_delta_attention(Bench& bench);
void bench_embedding(Bench& bench);
void bench_feature_map(Bench& bench);
void bench_global_norm(Bench& bench);
void bench_head_scale(Bench& bench);
void bench_head_sum(Bench& bench);
void bench_l2norm(Bench& bench);
void bench_linear_attention(Bench& bench);
void bench_matmul(Bench& bench);
void bench_mixers(Bench& bench);
void bench_qk_norm_rope(Bench& bench);
void bench_rmsnorm(Bench& bench);
void bench_rope(Bench& bench);
void bench_short_conv(Bench& bench);
void bench_sigmoid(Bench& bench);
void bench_silu_gate(Bench& bench);
void bench_softmax_attention(Bench& bench);
void bench_swiglu(Bench& bench);
void bench_unit_feature(Bench& bench);

}  // namespace kata
