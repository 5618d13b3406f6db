#include "ops/linear_attention.h"

#include "bench/cases.h"
#include "bench/data.h"

namespace kata {

namespace {

struct Problem {
  const char* name;
  FeatureMap map;
  int64_t batch, tokens, heads, value_width;
  bool decays = false;

  double rows() const { return static_cast<double>(batch * tokens * heads); }
  double read_width() const { return static_cast<double>(value_width + 1); }
};

FeatureMap psd(int64_t width, int64_t groups) {
  return {MapKind::psd, width, groups};
}

// Operations of a query and a visible key: products with k (three times as many backward) and v (twice).
double pair_flops(const Problem& p, bool backward) {
  const int64_t copies = p.map.kind == MapKind::psd_sum ? p.map.groups : p.map.components();
  const int64_t score = copies * p.map.width;
  const double k = 2.0 * static_cast<double>(score), v = 2.0 * static_cast<double>(p.value_width);
  return backward ? 3 * k + 2 * v : k + v;
}

// Floor: the products inside a chunk (quadratic: the whole sequence; recurrent: none) and, between chunks or
// tokens, two products of the features with the state forward and five backward.
double flops(const Problem& p, const LinearAttention& settings, bool backward) {
  const double inside = static_cast<double>(settings.form == Form::chunked ? settings.chunk : p.tokens);
  double row = settings.form == Form::recurrent ? 0 : (inside + 1) / 2 * pair_flops(p, backward);
  if (settings.form != Form::quadratic)
    row += (backward ? 10 : 4) * static_cast<double>(p.map.features()) * p.read_width();
  return p.rows() * row;
}

std::string name_of(Form form) {
  return form == Form::chunked ? "chunked" : form == Form::quadratic ? "quadratic" : "recurrent";
}

void bench_form(Bench& bench, const Problem& p, const LinearAttention& settings, bool gradients) {
  BenchData<float> q = bench_floats({p.batch, p.tokens, p.heads, p.map.width}), k = q, dq = q, dk = q;
  BenchData<float> v = bench_floats({p.batch, p.tokens, p.heads, p.value_width}), o = v, d_o = v, dv = v;
  BenchData<float> mass = bench_wide({p.batch, p.tokens, p.heads}), log_decay = mass, dlog_decay = mass;
  for (size_t i = 0; i < log_decay.size(); ++i) log_decay[i] = -0.02f - 0.01f * mass[i];
  const Decay decay{p.decays ? log_decay.tensor() : Tensor(), {}};
  const Tensor dlog = p.decays ? dlog_decay.tensor() : Tensor();
  const double tokens = static_cast<double>(p.batch * p.tokens), once = 2 * (q.bytes() + v.bytes());
  const std::string name = fmt::format("{} {}{} B {} T {} H {} d {}", name_of(settings.form), p.name,
                                       p.decays ? " decay" : "", p.batch, p.tokens, p.heads, p.map.width);
  bench.run(name, {flops(p, settings, false), once, tokens},
            [&](Context& ctx) { linear_attention_forward(ctx, o, mass, q, k, v, settings, {}, {}, decay); });
  if (!gradients) return;
  bench.run(name + " backward", {flops(p, settings, true), 2 * once, tokens}, [&](Context& ctx) {
    linear_attention_backward(ctx, dq, dk, dv, d_o, q, k, v, o, mass, settings, decay, dlog);
  });
}

void bench_quadratic(Bench& bench, const Problem& p) {
  bench_form(bench, p, {p.map, Read::normalised, Form::quadratic}, true);
}
void bench_chunked(Bench& bench, const Problem& p, bool gradients) {
  bench_form(bench, p, {p.map, Read::normalised, Form::chunked}, gradients);
}
void bench_recurrent(Bench& bench, const Problem& p) {
  bench_form(bench, p, {p.map, Read::normalised, Form::recurrent}, true);
}

// Floor: the state is read and written once.
void bench_step(Bench& bench, const Problem& p) {
  BenchData<float> q = bench_floats({p.batch, p.heads, p.map.width}), k = q;
  BenchData<float> v = bench_floats({p.batch, p.heads, p.value_width}), o = v;
  BenchData<float> state({p.batch, p.heads, p.map.features(), p.value_width + 1}, 0, true);
  const std::string name = fmt::format("step {} B {} H {} d {}", p.name, p.batch, p.heads, p.map.width);
  bench.run(name, {0, 2 * state.bytes(), static_cast<double>(p.batch)},
            [&](Context& ctx) { linear_attention_step(ctx, o, q, k, v, state, p.map, Read::normalised); });
}

}  // namespace

void bench_linear_attention(Bench& bench) {
  if (bench_target().gpu()) {
    for (const int64_t groups : {1, 2, 4})
      for (const int64_t tokens : {2048, 8192})
        bench_quadratic(bench, {"psd", psd(64, groups), 32768 / tokens, tokens, 16, 64});
    for (const int64_t tokens : {2048, 16384, 131072})
      bench_chunked(bench, {"psd M 1", psd(64, 1), std::max<int64_t>(1, 32768 / tokens), tokens, 16, 64},
                    tokens < 100000);
  }
  bench_quadratic(bench, {"psd M 1", psd(64, 1), 32, 256, 2, 64});
  bench_quadratic(bench, {"psd M 2", psd(64, 2), 32, 256, 2, 64});
  bench_quadratic(bench, {"psd M 4", psd(64, 4), 32, 256, 2, 64});
  bench_quadratic(bench, {"psd_sum M 2", {MapKind::psd_sum, 64, 2}, 32, 256, 2, 64});
  bench_quadratic(bench, {"orthant", {MapKind::orthant, 64, 1}, 32, 256, 2, 64});
  bench_quadratic(bench, {"lorentz", {MapKind::lorentz, 64, 1}, 32, 256, 2, 64});
  bench_quadratic(bench, {"hermitian", {MapKind::hermitian, 64, 1}, 32, 256, 2, 64});
  bench_quadratic(bench, {"quaternionic", {MapKind::quaternionic, 64, 1}, 32, 256, 2, 64});
  bench_quadratic(bench, {"psd M 1", psd(64, 1), 32, 256, 2, 64, true});
  bench_quadratic(bench, {"psd M 1", psd(64, 1), 256, 64, 2, 64});
  bench_quadratic(bench, {"psd M 1", psd(32, 1), 64, 128, 2, 32});
  bench_quadratic(bench, {"psd M 1", psd(64, 1), 1, 4096, 1, 64});
  bench_chunked(bench, {"psd M 1", psd(64, 1), 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"psd M 2", psd(64, 2), 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"orthant", {MapKind::orthant, 64, 1}, 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"hermitian", {MapKind::hermitian, 64, 1}, 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"quaternionic", {MapKind::quaternionic, 64, 1}, 8, 1024, 2, 64}, true);
  bench_chunked(bench, {"psd M 1", psd(64, 1), 8, 1024, 2, 64, true}, true);
  bench_chunked(bench, {"psd M 1", psd(64, 1), 1, 4096, 1, 64}, true);
  for (int64_t tokens : {1024, 4096, 16384, 65536})
    bench_chunked(bench, {"psd M 1", psd(64, 1), 1, tokens, 2, 64}, false);
  bench_recurrent(bench, {"psd M 2", psd(64, 2), 1, 1024, 2, 64});
  bench_step(bench, {"psd M 1", psd(64, 1), 1, 1, 2, 64});
  bench_step(bench, {"psd M 2", psd(64, 2), 1, 1, 2, 64});
  bench_step(bench, {"psd M 1", psd(64, 1), 1, 1, 16, 64});
}

}  // namespace kata
