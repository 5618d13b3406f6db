#include "ops/adamw.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. p, m, v, g are read, p, m, v written.
void bench_adamw(Bench& bench) {
  const int64_t n = int64_t{1} << 22;
  BenchData<float> p = bench_floats({n}), g = bench_floats({n}), m({n}, 0), v({n}, 0);
  const AdamWSettings settings{.lr = 1e-3, .weight_decay = 0.1, .step = 10};
  bench.run("4M parameters", {0, 7 * p.bytes(), 0}, [&](Context& ctx) { adamw(ctx, p, m, v, g, settings); });
}

}  // namespace kata
