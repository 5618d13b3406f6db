#include "ops/rmsnorm.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

void bench_rows(Bench& bench, int64_t rows, int64_t width) {
  const Shape shape{rows, width};
  BenchData<float> x = bench_floats(shape), y = x, dy = x, dx = x;
  BenchData<float> w = bench_wide({width}), dw = w, rstd = bench_wide({rows});
  const double tokens = static_cast<double>(rows);
  const std::string name = fmt::format("{}x{}", rows, width);
  bench.run("forward " + name, {0, x.bytes() + y.bytes(), tokens},
            [&](Context& ctx) { rmsnorm_forward(ctx, y, rstd, x, w, 1e-6); });
  bench.run("backward " + name, {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { rmsnorm_backward(ctx, dx, dw, dy, x, rstd, w, false); });
}

}  // namespace

// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
void bench_rmsnorm(Bench& bench) {
  if (bench_target().gpu()) {
    bench_rows(bench, 32768, 1024);
    bench_rows(bench, 524288, 64);  // the heads of as many tokens
    return;
  }
  bench_rows(bench, 8192, 128);
}

}  // namespace kata
