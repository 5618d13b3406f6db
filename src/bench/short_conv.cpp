#include "ops/short_conv.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
void bench_short_conv(Bench& bench) {
  const bool gpu = bench_target().gpu();
  const int64_t batch = gpu ? 16 : 32, time = gpu ? 2048 : 256, channels = gpu ? 3072 : 384, taps = 4;
  const Shape shape{batch, time, channels};
  BenchData<float> x = bench_floats(shape), y = bench_floats(shape), dx = bench_floats(shape);
  BenchData<float> w = bench_wide({channels, taps}), dw = w;
  BenchData<float> window = bench_floats({1, taps - 1, channels}), row = bench_floats({1, channels}),
                   out = bench_floats({1, channels});
  BenchData<float> bias = bench_wide({channels}), dbias = bias;
  BenchData<int32_t> starts({batch, time}, 0);  // documents of 64 tokens
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int32_t>(i % time / 64 * 64);
  const double tokens = static_cast<double>(batch * time);
  const std::string name = fmt::format("{}x{}", batch * time, channels);
  bench.run("forward " + name, {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { short_conv_forward(ctx, y, x, w); });
  bench.run("backward " + name, {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { short_conv_backward(ctx, dx, dw, y, x, w); });
  bench.run("forward " + name + " bias, documents", {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { short_conv_forward(ctx, y, x, w, bias, starts); });
  bench.run("backward " + name + " bias, documents", {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { short_conv_backward(ctx, dx, dw, y, x, w, bias, dbias, starts); });
  bench.run(fmt::format("step 1x{}", channels), {0, 2 * row.bytes() + 2 * window.bytes() + w.bytes(), 1},
            [&](Context& ctx) { short_conv_step(ctx, out, row, window, w); });
}

}  // namespace kata
