#include "ops/swiglu.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and writes y, half as wide; backward reads dy and x and writes dx.
void bench_swiglu(Bench& bench) {
  const bool gpu = bench_target().gpu();
  const int64_t rows = gpu ? 32768 : 8192, width = gpu ? 2816 : 344;
  BenchData<float> x = bench_floats({rows, 2 * width}), dx = bench_floats({rows, 2 * width}),
                   y = bench_floats({rows, width});
  const double tokens = static_cast<double>(rows);
  bench.run(fmt::format("forward {}x{}", rows, width), {0, x.bytes() + y.bytes(), tokens},
            [&](Context& ctx) { swiglu_forward(ctx, y, x); });
  bench.run(fmt::format("backward {}x{}", rows, width), {0, 2 * x.bytes() + y.bytes(), tokens},
            [&](Context& ctx) { swiglu_backward(ctx, dx, y, x); });
}

}  // namespace kata
