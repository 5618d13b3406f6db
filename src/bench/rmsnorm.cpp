#include "ops/rmsnorm.h"

#include "bench/cases.h"

namespace kata {

// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
void bench_rmsnorm(Bench& bench) {
  const int64_t rows = 8192, width = 128;
  std::vector<float> x(static_cast<size_t>(rows * width), 0.5f), y(x), dy(x), dx(x);
  std::vector<float> w(static_cast<size_t>(width), 1), dw(w), rstd(static_cast<size_t>(rows));
  const Shape shape{rows, width};
  const auto view = [](std::vector<float>& v, const Shape& s) { return Tensor(v.data(), DType::f32, s); };
  const double pass = static_cast<double>(rows * width) * sizeof(float), tokens = static_cast<double>(rows);
  bench.run("forward 8192x128", {0, 2 * pass, tokens}, [&](Context& ctx) {
    rmsnorm_forward(ctx, view(y, shape), view(rstd, {rows}), view(x, shape), view(w, {width}), 1e-6);
  });
  bench.run("backward 8192x128", {0, 3 * pass, tokens}, [&](Context& ctx) {
    rmsnorm_backward(ctx, view(dx, shape), view(dw, {width}), view(dy, shape), view(x, shape),
                     view(rstd, {rows}), view(w, {width}), false);
  });
}

}  // namespace kata
