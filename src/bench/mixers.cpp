// The mixers side by side: a row for each and each of its forms, at equal sizes (2 heads of 64; Mamba-2: 4
// heads of 64 that share keys of 128). Time per token of a chunked form must not grow with T. Its rows hold
// at least 16,384 tokens, as several sequences where T is smaller, so that every T reads from memory and none
// from the cache. The floors are in the cases linear_attention, delta_attention and softmax_attention.
#include "bench/cases.h"
#include "bench/data.h"
#include "ops/delta_attention.h"
#include "ops/softmax_attention.h"
#include "ops/unit_feature.h"

namespace kata {

namespace {

struct MixerRow {
  const char* name;
  FeatureMap map;
  bool delta = false, decays = false;
  Read read = Read::normalised;
  int64_t heads = 2;
  bool shared_keys = false;
};

std::vector<MixerRow> linear_mixers() {
  const auto map = [](MapKind kind, int64_t groups = 1, int64_t width = 64) {
    return FeatureMap{kind, width, groups};
  };
  const Read raw = Read::raw;
  return {{"linear_orthant", map(MapKind::orthant)},
          {"linear_lorentz", map(MapKind::lorentz)},
          {"kata_m1", map(MapKind::psd)},
          {"kata_m2", map(MapKind::psd, 2)},
          {"kata_m4", map(MapKind::psd, 4)},
          {"kata_s2", map(MapKind::psd_sum, 2)},
          {"kata_s4", map(MapKind::psd_sum, 4)},
          {"hermitian_kata", map(MapKind::hermitian)},
          {"quaternionic_kata", map(MapKind::quaternionic)},
          {"gatedkata_m1", map(MapKind::psd), false, true},
          {"gatedkata_m2", map(MapKind::psd, 2), false, true},
          {"deltakata_m1", map(MapKind::psd), true, false, raw},
          {"deltakata_m2", map(MapKind::psd, 2), true, false, raw},
          {"gateddeltakata_m1", map(MapKind::psd), true, true, raw},
          {"gateddeltakata_m2", map(MapKind::psd, 2), true, true, raw},
          {"deltanet", map(MapKind::identity), true, false, raw},
          {"gated_deltanet", map(MapKind::identity), true, true, raw},
          {"mamba2", map(MapKind::identity, 1, 128), false, true, raw, 4, true}};
}

constexpr int64_t value_width = 64;

BenchData<float> scaled_floats(const Shape& shape, float offset, float scale) {
  BenchData<float> x = bench_wide(shape);
  for (size_t i = 0; i < x.size(); ++i) x[i] = offset + scale * x[i];
  return x;
}

// b sequences of t tokens of a mixer, in their own memory.
struct Problem {
  Problem(const MixerRow& row, int64_t t, int64_t b = 1)
      : mixer(row),
        batch(b),
        tokens(t),
        q(keys(row, t, b)),
        k(q),
        v(bench_floats({b, t, row.heads, value_width})),
        o(v),
        errors(bench_wide(row.delta ? Shape{b, t, row.heads, value_width} : Shape{1})),
        mass(bench_wide({b, t, row.heads})),
        beta(scaled_floats({b, t, row.heads}, 0.5f, 0.5f)),
        log_decay(scaled_floats({b, t, row.heads}, -0.02f, 0.01f)),
        state({1, row.heads, row.map.features(), state_columns(row.read, value_width)}, 0, true) {}

  void forward(Context& ctx, Form form) {
    const Decay decay{mixer.decays ? log_decay.tensor() : Tensor(), {}};
    if (mixer.delta)
      return delta_attention_forward(ctx, o, errors, key_view(q), key_view(k), v, beta, {mixer.map, form}, {},
                                     {}, decay);
    const Tensor masses = mixer.read == Read::normalised ? mass.tensor() : Tensor();
    linear_attention_forward(ctx, o, masses, key_view(q), key_view(k), v, {mixer.map, mixer.read, form}, {},
                             {}, decay);
  }
  // One sequence of one token.
  void step(Context& ctx) {
    const auto token = [&](const Tensor& x) { return x.view({1, x.dim(2), x.dim(3)}); };
    const auto gate = [&](BenchData<float>& x) { return x.tensor().view({1, mixer.heads}); };
    const Tensor one_key =
        mixer.shared_keys ? q.tensor().view({1, mixer.map.width}).repeat(mixer.heads) : token(q.tensor());
    const Tensor decay = mixer.decays ? gate(log_decay) : Tensor();
    if (mixer.delta)
      delta_attention_step(ctx, token(o), one_key, one_key, token(v), gate(beta), state, mixer.map, decay);
    else
      linear_attention_step(ctx, token(o), one_key, one_key, token(v), state, mixer.map, mixer.read, decay);
  }

  MixerRow mixer;
  int64_t batch, tokens;
  BenchData<float> q, k, v, o, errors, mass, beta, log_decay, state;

 private:
  // Unit rows for the delta rule.
  static BenchData<float> keys(const MixerRow& row, int64_t tokens, int64_t batch) {
    BenchData<float> x = bench_floats({batch, tokens, row.shared_keys ? 1 : row.heads, row.map.width}), u = x;
    if (!row.delta) return x;
    cpu::unit_feature_forward<float>(u.host(), x.host(), 1, row.map,
                                     {batch * tokens * row.heads, 1, row.map.width, row.map.width, 0});
    return u;
  }
  Tensor key_view(BenchData<float>& x) const {
    if (!mixer.shared_keys) return x;
    return x.tensor().view({batch * tokens, mixer.map.width}).repeat(mixer.heads).split_first(batch, tokens);
  }
};

void bench_form(Bench& bench, const MixerRow& row, Form form, const char* name, int64_t tokens,
                int64_t batch = 1) {
  Problem p(row, tokens, batch);
  bench.run(fmt::format("{} {} B {} T {}", row.name, name, batch, tokens),
            {0, 0, static_cast<double>(batch * tokens)}, [&](Context& ctx) { p.forward(ctx, form); });
}

void bench_softmax(Bench& bench) {
  constexpr int64_t heads = 2;
  for (const int64_t tokens : {1024, 4096}) {
    BenchData<float> q = bench_floats({1, tokens, heads, value_width}), k = q, v = q, o = q;
    BenchData<float> lse = bench_wide({1, tokens, heads});
    bench.run(fmt::format("softmax quadratic T {}", tokens), {0, 0, static_cast<double>(tokens)},
              [&](Context& ctx) { softmax_attention_forward(ctx, o, lse, q, k, v, 0.125); });
  }
  BenchData<float> q = bench_floats({1, heads, value_width}), o = q;
  BenchData<float> cache = bench_floats({1, 4096, heads, value_width});
  bench.run("softmax step after 4096", {0, 0, 1},
            [&](Context& ctx) { softmax_attention_step(ctx, o, q, cache, cache, 4096, 0.125); });
}

}  // namespace

void bench_mixers(Bench& bench) {
  bench_softmax(bench);
  for (const MixerRow& row : linear_mixers()) {
    if (!row.delta) bench_form(bench, row, Form::quadratic, "quadratic", 1024);
    for (const int64_t tokens : {1024, 4096, 16384, 65536})
      bench_form(bench, row, Form::chunked, "chunked", tokens, std::max<int64_t>(1, 16384 / tokens));
    bench_form(bench, row, Form::recurrent, "recurrent", 1024);
    Problem one(row, 1);
    bench.run(fmt::format("{} step", row.name), {0, 0, 1}, [&](Context& ctx) { one.step(ctx); });
  }
}

}  // namespace kata
