#include "ops/cross_entropy.h"

#include "base/parallel.h"
#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

// One row in `every` is labelled.
void bench_loss(Bench& bench, int64_t rows, int64_t width, int64_t vocab, int64_t every) {
  BenchData<float> x = bench_floats({rows, width}), dx = bench_floats({rows, width}),
                   table = bench_floats({vocab, width}), dtable = bench_wide({vocab, width}),
                   losses = bench_wide({rows});
  BenchData<int32_t> targets = bench_ids(rows, vocab);
  for (size_t r = 0; r < targets.size(); ++r)
    if (r % static_cast<size_t>(every) != 0) targets[r] = -1;
  const double labelled = static_cast<double>(ceil_div(rows, every));
  const double product = 2 * labelled * static_cast<double>(vocab) * static_cast<double>(width);
  const double bytes = x.bytes() * labelled / static_cast<double>(rows) + table.bytes();
  const double tokens = static_cast<double>(rows);
  const std::string name = fmt::format("{}x{} vocab {}, 1 in {} labelled", rows, width, vocab, every);
  bench.run("forward " + name, {product, bytes, tokens},
            [&](Context& ctx) { cross_entropy_forward(ctx, losses, Tensor(), x, table, targets); });
  bench.run("backward " + name, {3 * product, 2 * bytes + dtable.bytes(), tokens},
            [&](Context& ctx) { cross_entropy_backward(ctx, losses, dx, dtable, x, table, targets, 1e-4); });
}

}  // namespace

// Floor: the matrix products, 2 labelled vocab width operations each: one forward, three backward (the exps
// and the passes over the tile of logits come on top).
void bench_cross_entropy(Bench& bench) {
  if (bench_target().gpu()) bench_loss(bench, 32768, 1024, 32000, 1);
  bench_loss(bench, 8192, 128, 256, 1);
  bench_loss(bench, 2048, 128, 8192, 1);
  bench_loss(bench, 8192, 128, 8192, 16);
}

}  // namespace kata
