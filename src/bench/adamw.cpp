#include "ops/adamw.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. p, m, v, g are read, p, m, v written, on a GPU the copy in 16 bits too.
void bench_adamw(Bench& bench) {
  const bool gpu = bench_target().gpu();
  const int64_t n = int64_t{1} << (gpu ? 28 : 22);
  BenchData<float> p = bench_wide({n}), g = bench_wide({n}), m({n}, 0, true), v({n}, 0, true);
  const AdamWSettings settings{.lr = 1e-3, .weight_decay = 0.1, .step = 10};
  bench.run(fmt::format("{}M parameters", n >> 20), {0, 7 * p.bytes(), 0},
            [&](Context& ctx) { adamw(ctx, p, m, v, g, settings); });
  if (!gpu || bench_target().element != DType::bf16) return;
  BenchData<float> copy({n}, 0);
  bench.run(fmt::format("{}M parameters, copy in bf16", n >> 20), {0, 7 * p.bytes() + copy.bytes(), 0},
            [&](Context& ctx) { adamw(ctx, p, m, v, g, settings, copy); });
}

}  // namespace kata
