#include "ops/head_scale.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
void bench_head_scale(Bench& bench) {
  const int64_t rows = 8192, heads = 4, width = 64;
  const Shape shape{rows, heads, width};
  BenchData<float> x = bench_floats(shape), y = x, dx = x;
  BenchData<float> token = bench_wide({rows, heads}), dtoken = token;
  BenchData<float> parameter = bench_wide({heads}), dparameter = parameter;
  const double tokens = static_cast<double>(rows);
  bench.run("forward per token 8192x4x64", {0, 2 * x.bytes() + token.bytes(), tokens},
            [&](Context& ctx) { head_scale_forward(ctx, y, token, x, false); });
  bench.run("backward per token 8192x4x64", {0, 3 * x.bytes() + 2 * token.bytes(), tokens},
            [&](Context& ctx) { head_scale_backward(ctx, dx, dtoken, y, token, x, false); });
  bench.run("forward added 8192x4x64", {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { head_scale_forward(ctx, y, parameter, x, true); });
  bench.run("backward parameter 8192x4x64", {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { head_scale_backward(ctx, dx, dparameter, y, parameter, x, false); });
}

}  // namespace kata
