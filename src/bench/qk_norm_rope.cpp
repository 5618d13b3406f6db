#include "ops/qk_norm_rope.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

// Heads of queries and as many of keys inside the fused rows of a projection, of which the values are not
// read; the gradient is turned and normed in place, as training does.
void bench_heads(Bench& bench, int64_t batch, int64_t time, int64_t heads, int64_t width) {
  const RopeSpec spec{width, 1, width, 10000};
  const int64_t tokens = batch * time, both = 2 * heads;
  BenchData<float> fused = bench_floats({tokens, 3 * heads * width}), dfused = fused;
  BenchData<float> turned = bench_floats({batch, time, both, width});
  BenchData<float> table = bench_wide({time, width / 2, 2}), q_weight = bench_wide({width}), dq = q_weight;
  BenchData<float> k_weight = q_weight, dk = q_weight, rstd = bench_wide({tokens * both});
  BenchData<int32_t> starts({batch, time}, 0);  // documents of 64 tokens
  for (size_t i = 0; i < starts.size(); ++i)
    starts[i] = static_cast<int32_t>(i % static_cast<size_t>(time) / 64 * 64);
  const auto view = [&](const Tensor& rows) {
    return rows.columns(0, both * width).split_last(both, width).split_first(batch, time);
  };
  QkNormRope by{heads, q_weight, k_weight, table, spec};
  const std::string name = fmt::format("{}x{}x{}", tokens, both, width);
  const double read = turned.bytes(), count = static_cast<double>(tokens);
  // Positions, not the noise that the tensor came with.
  bench.run(fmt::format("table {} positions", time), {0, table.bytes(), static_cast<double>(time)},
            [&](Context& ctx) { rope_table(ctx, table, 0, spec); });
  bench.run("forward " + name, {0, 2 * read, count},
            [&](Context& ctx) { qk_norm_rope_forward(ctx, turned, rstd, view(fused), by, 1e-6); });
  bench.run("backward " + name, {0, 3 * read, count}, [&](Context& ctx) {
    qk_norm_rope_backward(ctx, view(dfused), dq, dk, view(dfused), view(fused), rstd, by);
  });
  by.starts = starts;
  bench.run("forward " + name + " documents", {0, 2 * read, count},
            [&](Context& ctx) { qk_norm_rope_forward(ctx, turned, rstd, view(fused), by, 1e-6); });
}

}  // namespace

// Floor: memory. Forward reads q and k and writes them elsewhere; backward reads them and the gradient and
// writes a gradient. The table of one sequence stays in the cache.
void bench_qk_norm_rope(Bench& bench) {
  if (bench_target().gpu()) {
    bench_heads(bench, 16, 2048, 16, 64);
    bench_heads(bench, 16, 2048, 8, 128);
    return;
  }
  bench_heads(bench, 32, 256, 2, 64);
}

}  // namespace kata
