#include "ops/embedding.h"

#include <algorithm>

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads the rows that occur and writes y; backward reads dy and reads and writes those
// rows.
void bench_embedding(Bench& bench) {
  const bool gpu = bench_target().gpu();
  const int64_t rows = gpu ? 32768 : 8192, width = gpu ? 1024 : 128;
  for (const int64_t vocab : {int64_t{256}, gpu ? int64_t{32000} : int64_t{8192}}) {
    BenchData<float> table = bench_floats({vocab, width}), y = bench_floats({rows, width});
    BenchData<float> dtable = bench_wide({vocab, width});
    BenchData<int32_t> ids = bench_ids(rows, vocab);
    const double once = static_cast<double>(std::min(rows, vocab)) / static_cast<double>(vocab);
    const double tokens = static_cast<double>(rows);
    bench.run(fmt::format("forward {}x{} vocab {}", rows, width, vocab),
              {0, y.bytes() + once * table.bytes(), tokens},
              [&](Context& ctx) { embedding_forward(ctx, y, table, ids); });
    bench.run(fmt::format("backward {}x{} vocab {}", rows, width, vocab),
              {0, y.bytes() + 2 * once * dtable.bytes(), tokens},
              [&](Context& ctx) { embedding_backward(ctx, dtable, y, ids); });
  }
}

}  // namespace kata
