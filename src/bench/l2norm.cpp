#include "ops/l2norm.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
void bench_l2norm(Bench& bench) {
  const bool gpu = bench_target().gpu();
  const int64_t rows = gpu ? 32768 : 8192, heads = gpu ? 16 : 2, width = 64;
  const Shape shape{rows, heads, width};
  BenchData<float> x = bench_floats(shape), y = bench_floats(shape), dx = bench_floats(shape),
                   rnorm = bench_wide({rows * heads});
  const double tokens = static_cast<double>(rows);
  bench.run(fmt::format("forward {}x{}x{}", rows, heads, width), {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { l2norm_forward(ctx, y, rnorm, x, 1e-6); });
  bench.run(fmt::format("backward {}x{}x{}", rows, heads, width), {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { l2norm_backward(ctx, dx, y, x, rnorm, false); });
}

}  // namespace kata
