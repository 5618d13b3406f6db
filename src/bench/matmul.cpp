#include "ops/matmul.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

void bench_product(Bench& bench, int64_t m, int64_t n, int64_t k, bool gradients) {
  BenchData<float> x = bench_floats({m, k}), w = bench_floats({n, k}), y = bench_floats({m, n});
  BenchData<float> dw = bench_wide({n, k});
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const Work work{flops, x.bytes() + w.bytes() + y.bytes(), static_cast<double>(m)};
  const std::string name = fmt::format("{}x{} from {}", m, n, k);
  bench.run("y " + name, work, [&](Context& ctx) { matmul_forward(ctx, y, x, w); });
  if (!gradients) return;
  bench.run("dx " + name, work, [&](Context& ctx) { matmul_backward_input(ctx, x, y, w, false); });
  bench.run("dw " + name, work, [&](Context& ctx) { matmul_backward_weight(ctx, dw, y, x); });
}

}  // namespace

// Floor: 2 m n k operations at the rate of the matrix unit, or reading and writing each matrix once.
void bench_matmul(Bench& bench) {
  if (bench_target().gpu()) {  // the products of the 340M model
    bench_product(bench, 32768, 3072, 1024, true);
    bench_product(bench, 32768, 1024, 1024, true);
    bench_product(bench, 32768, 5632, 1024, true);
    bench_product(bench, 32768, 1024, 2816, true);
    bench_product(bench, 8192, 32000, 1024, true);
    return;
  }
  bench_product(bench, 8192, 128, 128, true);
  bench_product(bench, 8192, 384, 128, true);
  bench_product(bench, 8192, 688, 128, true);
  bench_product(bench, 8192, 128, 344, true);
  bench_product(bench, 2048, 1024, 1024, true);
  bench_product(bench, 1, 384, 128, false);
  bench_product(bench, 1, 8192, 1024, false);
}

}  // namespace kata
