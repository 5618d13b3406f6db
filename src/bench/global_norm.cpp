#include "ops/global_norm.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. x is read once.
void bench_global_norm(Bench& bench) {
  BenchData<float> x = bench_floats({int64_t{1} << 24});
  bench.run("16M elements", {0, x.bytes(), 0}, [&](Context& ctx) { global_norm(ctx, x); });
}

}  // namespace kata
