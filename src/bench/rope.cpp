#include "ops/rope.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. x is read and written once; the table of one sequence stays in the cache.
void bench_rope(Bench& bench) {
  const int64_t batch = 32, time = 256, heads = 2, width = 64;
  const RopeSpec spec{width, 1, width, 10000};
  BenchData<float> x = bench_floats({batch, time, heads, width}), table = bench_floats({time, width / 2, 2});
  BenchData<int32_t> starts({batch, time}, 0);  // documents of 64 tokens
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int32_t>(i % time / 64 * 64);
  const double tokens = static_cast<double>(batch * time);
  bench.run("table 256 positions", {0, table.bytes(), static_cast<double>(time)},
            [&](Context& ctx) { rope_table(ctx, table, 0, spec); });
  bench.run("forward 8192x2x64", {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { rope_forward(ctx, x, table, spec); });
  bench.run("forward 8192x2x64 documents", {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { rope_forward(ctx, x, table, spec, starts); });
  bench.run("backward 8192x2x64", {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { rope_backward(ctx, x, table, spec); });
}

}  // namespace kata
