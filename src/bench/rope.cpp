#include "ops/rope.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. x is read and written once; the table of one sequence stays in the cache.
void bench_rope(Bench& bench) {
  const bool gpu = bench_target().gpu();
  const int64_t batch = gpu ? 16 : 32, time = gpu ? 2048 : 256, heads = gpu ? 16 : 2, width = 64;
  const RopeSpec spec{width, 1, width, 10000};
  BenchData<float> x = bench_floats({batch, time, heads, width}), table = bench_wide({time, width / 2, 2});
  BenchData<int32_t> starts({batch, time}, 0);  // documents of 64 tokens
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int32_t>(i % time / 64 * 64);
  const double tokens = static_cast<double>(batch * time);
  const std::string name = fmt::format("{}x{}x{}", batch * time, heads, width);
  bench.run(fmt::format("table {} positions", time), {0, table.bytes(), static_cast<double>(time)},
            [&](Context& ctx) { rope_table(ctx, table, 0, spec); });
  bench.run("forward " + name, {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { rope_forward(ctx, x, table, spec); });
  bench.run("forward " + name + " documents", {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { rope_forward(ctx, x, table, spec, starts); });
  bench.run("backward " + name, {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { rope_backward(ctx, x, table, spec); });
}

}  // namespace kata
