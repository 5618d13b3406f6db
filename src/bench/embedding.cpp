#include "ops/embedding.h"

#include <algorithm>

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads the rows that occur and writes y; backward reads dy and reads and writes those
// rows.
void bench_embedding(Bench& bench) {
  const int64_t rows = 8192, width = 128;
  for (const int64_t vocab : {256, 8192}) {
    BenchData<float> table = bench_floats({vocab, width}), y = bench_floats({rows, width});
    BenchData<int32_t> ids = bench_ids(rows, vocab);
    const double touched = static_cast<double>(std::min(rows, vocab) * width) * sizeof(float);
    const double tokens = static_cast<double>(rows);
    bench.run(fmt::format("forward 8192x128 vocab {}", vocab), {0, y.bytes() + touched, tokens},
              [&](Context& ctx) { embedding_forward(ctx, y, table, ids); });
    bench.run(fmt::format("backward 8192x128 vocab {}", vocab), {0, y.bytes() + 2 * touched, tokens},
              [&](Context& ctx) { embedding_backward(ctx, table, y, ids); });
  }
}

}  // namespace kata
