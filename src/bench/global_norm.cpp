#include "ops/global_norm.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. x is read once.
void bench_global_norm(Bench& bench) {
  const int64_t n = int64_t{1} << (bench_target().gpu() ? 28 : 24);
  BenchData<float> x = bench_wide({n});
  BenchData<double> norm({1}, 0);
  bench.run(fmt::format("{}M elements", n >> 20), {0, x.bytes(), 0},
            [&](Context& ctx) { global_norm_to(ctx, norm, x); });
}

}  // namespace kata
