#include "ops/sigmoid.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and writes y; backward reads dy and y and writes dx.
void bench_sigmoid(Bench& bench) {
  const int64_t rows = 65536, width = 16;
  const Shape shape{rows, width};
  BenchData<float> x = bench_floats(shape), dx = x, y = bench_wide(shape), dy = y;
  const double tokens = static_cast<double>(rows);
  bench.run("forward 65536x16", {0, x.bytes() + y.bytes(), tokens},
            [&](Context& ctx) { sigmoid_forward(ctx, y, x); });
  bench.run("backward 65536x16", {0, x.bytes() + 2 * y.bytes(), tokens},
            [&](Context& ctx) { sigmoid_backward(ctx, dx, dy, y); });
}

}  // namespace kata
