#include "ops/softmax_attention.h"

#include <cmath>

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

// Floor: 2 (d + dv) operations a pair of a query and a visible key forward, 2 (3 d + 2 dv) backward.
void bench_sequence(Bench& bench, int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
  BenchData<float> q = bench_floats({batch, tokens, heads, width}), k = q, v = q, o = q, d_o = q;
  BenchData<float> dq = q, dk = q, dv = q, lse = bench_floats({batch, tokens, heads});
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const double pairs = static_cast<double>(batch * heads * tokens) * static_cast<double>(tokens + 1) / 2;
  const double product = 2 * pairs * static_cast<double>(width), once = 4 * q.bytes();
  const double rows = static_cast<double>(batch * tokens);
  const std::string name = fmt::format("B {} T {} H {} d {}", batch, tokens, heads, width);
  bench.run(name, {2 * product, once, rows},
            [&](Context& ctx) { softmax_attention_forward(ctx, o, lse, q, k, v, scale); });
  bench.run(name + " backward", {5 * product, 2 * once, rows},
            [&](Context& ctx) { softmax_attention_backward(ctx, dq, dk, dv, d_o, q, k, v, o, lse, scale); });
}

// Floor: the cached keys and values are read once.
void bench_step(Bench& bench, int64_t length, int64_t heads, int64_t width) {
  BenchData<float> q = bench_floats({1, heads, width}), o = q;
  BenchData<float> k = bench_floats({1, length, heads, width}), v = k;
  bench.run(fmt::format("step after {} H {} d {}", length, heads, width), {0, 2 * k.bytes(), 1},
            [&](Context& ctx) { softmax_attention_step(ctx, o, q, k, v, length, 0.125); });
}

}  // namespace

void bench_softmax_attention(Bench& bench) {
  bench_sequence(bench, 32, 256, 2, 64);
  bench_sequence(bench, 256, 64, 2, 64);
  bench_sequence(bench, 1, 4096, 1, 64);
  bench_step(bench, 4096, 2, 64);
}

}  // namespace kata
