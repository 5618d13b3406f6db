#include "ops/feature_map.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

// Floor: memory. Forward reads x and writes f; backward reads df and x and writes dx.
void bench_map(Bench& bench, const std::string& name, const FeatureMap& map) {
  const int64_t rows = 4096;
  BenchData<float> x = bench_floats({rows, map.width}), dx = x, f({rows, map.features()}, 1);
  const double tokens = static_cast<double>(rows);
  bench.run(name, {0, x.bytes() + f.bytes(), tokens},
            [&](Context& ctx) { feature_map_forward(ctx, f, x, map); });
  bench.run(name + " backward", {0, 2 * x.bytes() + f.bytes(), tokens},
            [&](Context& ctx) { feature_map_backward(ctx, dx, f, x, map); });
}

}  // namespace

void bench_feature_map(Bench& bench) {
  bench_map(bench, "psd M 1 d 64", {MapKind::psd, 64, 1});
  bench_map(bench, "psd M 4 d 64", {MapKind::psd, 64, 4});
  bench_map(bench, "psd_sum M 2 d 64", {MapKind::psd_sum, 64, 2});
  bench_map(bench, "orthant d 64", {MapKind::orthant, 64, 1});
  bench_map(bench, "lorentz d 64", {MapKind::lorentz, 64, 1});
}

}  // namespace kata
