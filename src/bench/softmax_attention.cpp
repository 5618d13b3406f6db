#include "ops/softmax_attention.h"

#include <cmath>

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

// Floor: 2 (d + dv) operations a pair of a query and a visible key forward, 2 (3 d + 2 dv) backward.
void bench_sequence(Bench& bench, int64_t batch, int64_t tokens, int64_t heads, int64_t width) {
  BenchData<float> q = bench_floats({batch, tokens, heads, width}), k = q, v = q, o = q, d_o = q;
  BenchData<float> dq = q, dk = q, dv = q, lse = bench_wide({batch, tokens, heads});
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

// Documents of equal length in one row, each the work of a row of its own; and the last tokens over a cache.
void bench_documents(Bench& bench, int64_t tokens, int64_t document, int64_t width) {
  BenchData<float> q = bench_floats({1, tokens, 1, width}), k = q, v = q, o = q;
  BenchData<float> lse = bench_wide({1, tokens, 1});
  BenchData<int32_t> starts({1, tokens}, 0);
  for (int64_t t = 0; t < tokens; ++t) starts[static_cast<size_t>(t)] = int32_t(t / document * document);
  const double pairs = static_cast<double>(tokens) * static_cast<double>(document + 1) / 2;
  bench.run(fmt::format("T {} documents of {} d {}", tokens, document, width),
            {4 * pairs * static_cast<double>(width), 4 * q.bytes(), static_cast<double>(tokens)},
            [&](Context& ctx) { softmax_attention_forward(ctx, o, lse, q, k, v, 0.125, starts); });
  const int64_t last = document, before = tokens - last;
  const double seen = static_cast<double>(last) * static_cast<double>(tokens + before + 1) / 2;
  BenchData<float> rest_q = bench_floats({1, last, 1, width}), rest_o = rest_q,
                   rest_lse({1, last, 1}, 0, true);
  bench.run(
      fmt::format("last {} of {} over a cache d {}", last, tokens, width),
      {4 * seen * static_cast<double>(width), 2 * k.bytes() + 2 * rest_q.bytes(), static_cast<double>(last)},
      [&](Context& ctx) {
        softmax_attention_forward(ctx, rest_o, rest_lse, rest_q, k, v, 0.125, {}, before);
      });
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
  if (bench_target().gpu())
    for (const int64_t tokens : {2048, 8192}) bench_sequence(bench, 32768 / tokens, tokens, 16, 64);
  bench_sequence(bench, 32, 256, 2, 64);
  bench_sequence(bench, 256, 64, 2, 64);
  bench_sequence(bench, 1, 4096, 1, 64);
  bench_documents(bench, 4096, 256, 64);
  bench_step(bench, 4096, 2, 64);
}

}  // namespace kata
