#include "ops/decay_gate.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

// Floor: memory. Forward reads x and writes log_decay; backward reads dlog_decay and x and writes dx.
void bench_decay_gate(Bench& bench) {
  const int64_t rows = 65536, heads = 16;
  const Shape shape{rows, heads};
  BenchData<float> x = bench_floats(shape), dx = x, log_decay = bench_wide(shape), dt = log_decay;
  BenchData<float> a_log = bench_wide({heads}), bias = a_log, da_log = a_log, dbias = a_log;
  const double tokens = static_cast<double>(rows);
  bench.run("forward 65536x16", {0, 2 * x.bytes(), tokens},
            [&](Context& ctx) { decay_gate_forward(ctx, log_decay, {}, x, a_log, bias); });
  bench.run("forward with dt 65536x16", {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { decay_gate_forward(ctx, log_decay, dt, x, a_log, bias); });
  bench.run("backward 65536x16", {0, 3 * x.bytes(), tokens}, [&](Context& ctx) {
    decay_gate_backward(ctx, dx, da_log, dbias, log_decay, {}, x, a_log, bias);
  });
}

}  // namespace kata
