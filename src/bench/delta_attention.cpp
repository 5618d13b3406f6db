#include "ops/delta_attention.h"

#include "bench/cases.h"
#include "bench/data.h"
#include "ops/unit_feature.h"

namespace kata {

namespace {

struct Problem {
  const char* name;
  FeatureMap map;
  int64_t batch, tokens, heads, value_width;
  bool decays = false;

  double rows() const { return static_cast<double>(batch * tokens * heads); }
};

FeatureMap identity(int64_t width) {
  return {MapKind::identity, width, 1};
}
FeatureMap psd(int64_t width, int64_t groups) {
  return {MapKind::psd, width, groups};
}

// Floor: between chunks the products with the state, 6 n dv operations forward and 16 n dv backward; inside a
// chunk, per pair of tokens, the scores of k with k and of q with k (three times as many backward), the
// substitution and the read (twice).
double flops(const Problem& p, int64_t chunk, bool backward) {
  const double d = static_cast<double>(p.map.width), dv = static_cast<double>(p.value_width);
  const double pairs = static_cast<double>(chunk + 1) / 2, state = static_cast<double>(p.map.features()) * dv;
  return p.rows() * (pairs * (backward ? 12 * d + 8 * dv : 4 * d + 4 * dv) + (backward ? 16 : 6) * state);
}

// Unit rows, as the op is meant for.
BenchData<float> unit_rows(const Shape& shape, const FeatureMap& map) {
  BenchData<float> x = bench_floats(shape), u = x;
  cpu::unit_feature_forward<float>(u.host(), x.host(), 1, map,
                                   {shape.numel() / map.width, 1, map.width, map.width, 0});
  return u;
}

// In (0, 1).
BenchData<float> strengths(const Shape& shape) {
  BenchData<float> x = bench_wide(shape);
  for (size_t i = 0; i < x.size(); ++i) x[i] = (x[i] + 1) / 2;
  return x;
}
// A factor near 0.98.
BenchData<float> decays(const Shape& shape) {
  BenchData<float> x = bench_wide(shape);
  for (size_t i = 0; i < x.size(); ++i) x[i] = -0.02f - 0.01f * x[i];
  return x;
}

void bench_chunked(Bench& bench, const Problem& p, bool gradients) {
  const Shape q_shape{p.batch, p.tokens, p.heads, p.map.width}, gate{p.batch, p.tokens, p.heads};
  BenchData<float> q = unit_rows(q_shape, p.map), k = q, dq = q, dk = q;
  BenchData<float> v = bench_floats({p.batch, p.tokens, p.heads, p.value_width}), o = v, dv = v;
  BenchData<float> errors = bench_wide({p.batch, p.tokens, p.heads, p.value_width});
  BenchData<float> beta = strengths(gate), dbeta = beta, log_decay = decays(gate), dlog_decay = beta;
  const DeltaAttention settings{p.map};
  const double tokens = static_cast<double>(p.batch * p.tokens), once = 2 * (q.bytes() + v.bytes());
  const std::string name = fmt::format("chunked {}{} B {} T {} H {} d {}", p.name, p.decays ? " decay" : "",
                                       p.batch, p.tokens, p.heads, p.map.width);
  const Decay decay{p.decays ? log_decay.tensor() : Tensor(), {}};
  const Tensor dlog = p.decays ? dlog_decay.tensor() : Tensor();
  const auto forward = [&](Context& ctx) {
    delta_attention_forward(ctx, o, errors, q, k, v, beta, settings, {}, {}, decay);
  };
  bench.run(name, {flops(p, settings.chunk, false), once, tokens}, forward);
  if (!gradients) return;
  bench.run(name + " backward", {flops(p, settings.chunk, true), 2 * once, tokens}, [&](Context& ctx) {
    delta_attention_backward(ctx, dq, dk, dv, dbeta, o, q, k, v, beta, errors, settings, decay, dlog);
  });
}

// Floor: the state is read and written once.
void bench_step(Bench& bench, const Problem& p) {
  const Shape q_shape{p.batch, p.heads, p.map.width};
  BenchData<float> q = unit_rows(q_shape, p.map), k = q, beta = strengths({p.batch, p.heads});
  BenchData<float> v = bench_floats({p.batch, p.heads, p.value_width}), o = v;
  BenchData<float> state({p.batch, p.heads, p.map.features(), p.value_width}, 0, true);
  const std::string name = fmt::format("step {} B {} H {} d {}", p.name, p.batch, p.heads, p.map.width);
  bench.run(name, {0, 2 * state.bytes(), static_cast<double>(p.batch)},
            [&](Context& ctx) { delta_attention_step(ctx, o, q, k, v, beta, state, p.map); });
}

}  // namespace

void bench_delta_attention(Bench& bench) {
  if (bench_target().gpu()) {  // the sizes that scripts/bench_peers.py --gpu times
    for (const bool decays : {false, true})
      for (const int64_t tokens : {2048, 8192, 32768})
        bench_chunked(bench, {"identity", identity(64), 32768 / tokens, tokens, 16, 64, decays}, true);
    bench_chunked(bench, {"psd M 1", psd(64, 1), 16, 2048, 16, 64}, true);
    bench_chunked(bench, {"psd M 2", psd(64, 2), 16, 2048, 16, 64}, true);
  }
  bench_chunked(bench, {"identity", identity(64), 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"psd M 1", psd(64, 1), 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"psd M 2", psd(64, 2), 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"identity", identity(64), 8, 1024, 2, 64, true}, true);
  bench_chunked(bench, {"psd M 1", psd(64, 1), 8, 1024, 2, 64, true}, true);
  for (int64_t tokens : {1024, 4096, 16384, 65536})
    bench_chunked(bench, {"psd M 1", psd(64, 1), 1, tokens, 2, 64}, false);
  for (int64_t tokens : {1024, 4096, 16384, 65536})
    bench_chunked(bench, {"identity", identity(64), 1, tokens, 2, 64}, false);
  bench_step(bench, {"identity", identity(64), 1, 1, 2, 64});
  bench_step(bench, {"psd M 1", psd(64, 1), 1, 1, 2, 64});
  bench_step(bench, {"psd M 2", psd(64, 2), 1, 1, 2, 64});
}

}  // namespace kata
