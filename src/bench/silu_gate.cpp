#include "ops/silu_gate.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and g and writes y; backward reads dy, x and g and writes dx and dg.
void bench_silu_gate(Bench& bench) {
  const int64_t rows = 4096, width = 512;
  const Shape shape{rows, width};
  BenchData<float> x = bench_floats(shape), g = x, y = x, dx = x, dg = x;
  const double tokens = static_cast<double>(rows);
  bench.run("forward 4096x512", {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { silu_gate_forward(ctx, y, x, g); });
  bench.run("backward 4096x512", {0, 5 * x.bytes(), tokens},
            [&](Context& ctx) { silu_gate_backward(ctx, dx, dg, y, x, g); });
}

}  // namespace kata
