#include <algorithm>
#include <chrono>
#include <functional>

#include "base/parallel.h"
#include "bench/bench.h"
#include "bench/data.h"
#include "ops/matmul.h"

namespace kata {

namespace {

// A rate is what the machine can do, so the fastest of several runs counts.
double least_seconds(const std::function<void()>& body) {
  double least = 1e30;
  for (int run = 0; run < 12; ++run) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (run >= 2) least = std::min(least, time.count());  // the first two warm up
  }
  return least;
}

double matrix_rate(int64_t m, int64_t n, int64_t k) {
  BenchData<float> x = bench_floats({m, k}), w = bench_floats({n, k}), y = bench_floats({m, n});
  Arena plan;
  Context planning{plan};
  matmul_forward(planning, y, x, w);
  Arena arena(plan.peak());
  Context ctx{arena};
  const double seconds = least_seconds([&] { matmul_forward(ctx, y, x, w); });
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / seconds;
}

// The BLAS has two paths, one that packs its operands and one for small products that does not.
double matrix_rate() {
  return std::max(matrix_rate(2048, 1024, 1024), matrix_rate(8192, 128, 128));
}

double copy_rate() {
  const int64_t n = int64_t{1} << 24, block = 1 << 16;  // 64 MiB each way, larger than a cache
  BenchData<float> from = bench_floats({n}), to = bench_floats({n});
  const float* source = from.tensor().as<float>();
  float* target = to.tensor().as<float>();
  const double seconds = least_seconds([&] {
    parallel_blocks(n, block, [&](int64_t begin, int64_t end) {
      std::copy(source + begin, source + end, target + begin);
    });
  });
  return 2 * from.bytes() / seconds;
}

}  // namespace

MachineRates measure_rates() {
  return {matrix_rate(), copy_rate()};
}

}  // namespace kata
