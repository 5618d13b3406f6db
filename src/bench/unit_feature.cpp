#include "ops/unit_feature.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

// Floor: memory. Forward reads x and writes u; backward reads du and x and writes dx.
void bench_map(Bench& bench, const std::string& name, const FeatureMap& map) {
  const int64_t rows = 8192, heads = 2;
  const Shape shape{rows, heads, map.width};
  BenchData<float> x = bench_floats(shape), u = x, dx = x;
  const double tokens = static_cast<double>(rows);
  bench.run(name, {0, 2 * x.bytes(), tokens}, [&](Context& ctx) { unit_feature_forward(ctx, u, x, 1, map); });
  bench.run(name + " backward", {0, 3 * x.bytes(), tokens},
            [&](Context& ctx) { unit_feature_backward(ctx, dx, u, x, 1, map); });
}

}  // namespace

void bench_unit_feature(Bench& bench) {
  bench_map(bench, "psd M 1 8192x2x64", {MapKind::psd, 64, 1});
  bench_map(bench, "psd M 4 8192x2x64", {MapKind::psd, 64, 4});
  bench_map(bench, "psd_sum M 2 8192x2x64", {MapKind::psd_sum, 64, 2});
  bench_map(bench, "identity 8192x2x64", {MapKind::identity, 64, 1});
  bench_map(bench, "orthant 8192x2x64", {MapKind::orthant, 64, 1});
  bench_map(bench, "lorentz 8192x2x64", {MapKind::lorentz, 64, 1});
}

}  // namespace kata
