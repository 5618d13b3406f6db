#include "ops/head_sum.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Reads x and writes y.
void bench_head_sum(Bench& bench) {
  const int64_t rows = 4096, heads = 8, width = 128;
  BenchData<float> x = bench_floats({rows, heads, width}), y = bench_floats({rows, width});
  bench.run("4096x8x128", {0, x.bytes() + y.bytes(), static_cast<double>(rows)},
            [&](Context& ctx) { head_sum(ctx, y, x); });
}

}  // namespace kata
