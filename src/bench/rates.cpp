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
  Context planning(plan);
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

// A body that queues work on the GPU.
double queued_seconds(const std::function<void()>& body) {
  const Gpu& gpu = *bench_target().processor.gpu;
  return least_seconds([&] {
           for (int i = 0; i < 4; ++i) body();
           gpu.synchronise();
         }) /
         4;
}

MachineRates measure_gpu() {
  const Gpu& gpu = *bench_target().processor.gpu;
  const int64_t m = 8192, n = 8192, k = 8192;
  BenchData<float> x = bench_floats({m, k}), w = bench_floats({n, k}), y = bench_floats({m, n});
  Arena none(0, Arena::Memory::gpu);
  Context ctx(none, bench_target().processor);
  const double product = queued_seconds([&] { matmul_forward(ctx, y, x, w); });
  const size_t bytes = size_t{2} << 30;
  const auto from = device_memory(bytes), to = device_memory(bytes);
  const double copy = queued_seconds([&] { gpu.copy(to.get(), from.get(), bytes); });
  return {2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / product,
          2.0 * static_cast<double>(bytes) / copy};
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
  if (bench_target().gpu()) return measure_gpu();
  return {matrix_rate(), copy_rate()};
}

}  // namespace kata
