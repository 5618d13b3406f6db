#include "kernels/delta_trial.h"

namespace kata {
namespace {

using namespace test;
class CudaDeltaAttentionChunked : public GpuTest {};

const FormChoice chunks = chunked_form(64);

TEST_F(CudaDeltaAttentionChunked, EveryMap) {
  for (const FeatureMap& map : delta_maps(8, 7)) {
    const LinearProblem p = delta_problem(map, 2, 70, 2, 1, 5);
    SCOPED_TRACE(::testing::PrintToString(p));
    run_delta_trial(p, chunks);
  }
}

TEST_F(CudaDeltaAttentionChunked, EveryMapWithDecayInDocuments) {
  for (const FeatureMap& map : delta_maps(8, 7))
    for (const LinearProblem& p : faded(delta_problem(map, 2, 130, 4, 2, 3))) {
      SCOPED_TRACE(::testing::PrintToString(p));
      run_delta_trial(p, chunks);
    }
}

TEST_F(CudaDeltaAttentionChunked, Lengths) {
  for (const int64_t tokens : {1, 63, 64, 65, 130})
    for (const FeatureMap& map : {FeatureMap{MapKind::identity, 16, 1}, psd(16, 2)}) {
      LinearProblem p = delta_problem(map, 1, tokens, 6, 2, 17);
      p.decays = tokens > 1;  // one token fades nothing
      SCOPED_TRACE(::testing::PrintToString(p));
      run_delta_trial(p, chunks);
    }
}

// The sizes of the models; more columns of values than a tile has; 2080 features.
TEST_F(CudaDeltaAttentionChunked, ModelSizes) {
  for (const LinearProblem& p :
       {delta_problem({MapKind::identity, 64, 1}, 2, 200, 4, 4, 64),
        delta_problem(psd(64, 1), 1, 200, 2, 1, 64), delta_problem(psd(64, 2), 1, 130, 1, 1, 96),
        delta_problem({MapKind::identity, 128, 1}, 1, 130, 2, 1, 128),
        delta_problem({MapKind::lorentz, 128, 1}, 1, 70, 1, 1, 66)})
    for (const bool decays : {false, true}) {
      LinearProblem faded = p;
      faded.decays = decays;
      SCOPED_TRACE(::testing::PrintToString(faded));
      run_delta_trial(faded, chunks);
    }
}

// 67 chunks: states of two segments, the second one short.
TEST_F(CudaDeltaAttentionChunked, SegmentsOfStates) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 5, 1}, psd(4, 1)})
    for (const LinearProblem& p : faded(delta_problem(map, 1, 64 * 66 + 5, 2, 1, 3))) {
      SCOPED_TRACE(::testing::PrintToString(p));
      run_delta_trial(p, chunks);
    }
}

// More pairs of 8256 x 128 numbers than are worked on at once.
TEST_F(CudaDeltaAttentionChunked, GroupsOfPairs) {
  LinearProblem p = delta_problem(psd(128, 1), 17, 3, 2, 2, 128);
  p.decays = true;
  run_delta_trial(p, chunks);
}

// q, k and v are parts of one projection's rows, and so are their gradients.
TEST_F(CudaDeltaAttentionChunked, Views) {
  const LinearProblem p = delta_problem(psd(16, 2), 2, 70, 4, 2, 16);
  const int64_t row = (p.heads + 2 * p.kv_heads) * 16;
  GpuTrial trial(delta_values);
  trial.data("fused", {p.batch, p.tokens, row}, 0.25).data("d_o", p.o_shape());
  trial.wide("beta", beta_shape(p)).fill("beta", random_betas(count(beta_shape(p)), 4));
  trial.result("dfused", {p.batch, p.tokens, row + 16}).result("o", p.o_shape());
  trial.wide_result("errors", errors_shape(p)).wide_result("dbeta", beta_shape(p));
  trial.tolerance("errors", delta_wide).tolerance("dbeta", delta_wide_gradients);
  trial.tolerance("dfused", delta_gradients);
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const auto part = [&](const Tensor& x, int64_t first, int64_t heads) {
      return x.columns(first * 16, (first + heads) * 16).split_last(heads, 16);
    };
    const Tensor &x = t["fused"], &dx = t["dfused"];
    const DeltaAttention settings = delta_settings(p, chunks);
    delta_attention_forward(ctx, t["o"], t["errors"], part(x, 0, 4), part(x, 4, 2), part(x, 6, 2), t["beta"],
                            settings);
    delta_attention_backward(ctx, part(dx, 0, 4), part(dx, 4, 2), part(dx, 6, 2), t["dbeta"], t["d_o"],
                             part(x, 0, 4), part(x, 4, 2), part(x, 6, 2), t["beta"], t["errors"], settings);
  });
}

// Keys of 0 hold nothing and erase nothing, and a beta of 0 writes nothing.
TEST_F(CudaDeltaAttentionChunked, NothingIsWritten) {
  const LinearProblem p = delta_problem(psd(8, 1), 1, 70, 1, 1, 4);
  for (const char* name : {"k", "beta"}) {
    SCOPED_TRACE(name);
    GpuTrial trial = delta_trial(p);
    add_delta_state(trial, p);
    add_delta_gradients(trial, p);
    trial.fill(name, std::vector<double>(count(name[0] == 'k' ? p.k_shape() : beta_shape(p)), 0));
    run_delta_trial(trial, p, chunks);
    for (const double x : trial.gpu_values("o")) ASSERT_EQ(x, 0);
  }
}

// Two calls on the GPU, the second from the first one's state and in its place, are one on the CPU.
TEST_F(CudaDeltaAttentionChunked, StateHandOver) {
  for (const FeatureMap& map : delta_maps(8, 7))
    for (const bool decays : {false, true})
      for (const int64_t cut : {1, 64, 100}) {
        LinearProblem p = delta_problem(map, 1, 130, 2, 1, 5);
        p.decays = decays;
        SCOPED_TRACE(::testing::PrintToString(p));
        GpuTrial trial = delta_trial(p);
        add_delta_state(trial, p);
        trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
          const bool whole = ctx.device == Device::cpu;
          if (!whole) delta_piece(ctx, t, p, chunks, 0, cut);
          delta_piece(ctx, t, p, chunks, whole ? 0 : cut, p.tokens);
        });
      }
}

// The unit row of one random key, for every token of `period` in turn.
std::vector<double> repeated_keys(const LinearProblem& p, int64_t period) {
  const std::vector<double> few = random_normal(count(p.k_shape()), 77);
  std::vector<double> keys;
  for (int64_t t = 0; t < p.tokens; ++t)
    for (int64_t j = 0; j < p.map.width; ++j)
      keys.push_back(few[static_cast<size_t>(t / period * p.map.width + j)]);
  return unit_rows(p.map, keys);
}

// 10,000 writes of one key with beta = 1: the last value comes back.
TEST_F(CudaDeltaAttentionChunked, TheLastValueComesBack) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 8, 1}, psd(8, 1), psd(16, 2)}) {
    SCOPED_TRACE(::testing::PrintToString(map));
    const LinearProblem p = delta_problem(map, 1, 10000, 1, 1, 4);
    GpuTrial trial = delta_trial(p);
    const auto keys = repeated_keys(p, p.tokens), values = random_normal(count(p.v_shape()), 5);
    trial.fill("k", keys).fill("q", keys).fill("v", values);
    trial.fill("beta", std::vector<double>(count(beta_shape(p)), 1));
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) { delta_forward(ctx, t, p, chunks); }, DType::f32);
    const std::vector<double>& o = trial.gpu_values("o");
    for (size_t i = 0; i < o.size(); ++i) ASSERT_NEAR(o[i], values[i], 3e-5) << i;
  }
}

// Keys that repeat through a chunk or for ever, or nearly so, in values and gradients. The decay's gradient
// is zero in exact arithmetic where one key is written with full strength.
TEST_F(CudaDeltaAttentionChunked, KeysThatComeBack) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 8, 1}, psd(8, 2)})
    for (const int64_t period : {1, 64, 2048})
      for (const bool nearly : {false, true}) {
        LinearProblem p = delta_problem(map, 1, 2048, 1, 1, 4);
        p.decays = true;
        SCOPED_TRACE(
            fmt::format("{} for {} tokens{}", ::testing::PrintToString(p), period, nearly ? ", nearly" : ""));
        GpuTrial trial = delta_trial(p);
        add_delta_gradients(trial, p);
        std::vector<double> keys = repeated_keys(p, period);
        const std::vector<double> away = random_normal(keys.size(), 78, 1e-3);
        for (size_t i = 0; nearly && i < keys.size(); ++i) keys[i] += away[i];
        trial.fill("k", unit_rows(p.map, keys));
        trial.fill("beta", std::vector<double>(count(beta_shape(p)), 1))
            .tolerance("dlog", {INFINITY, INFINITY});
        trial.run([&](Context& ctx, GpuTrial::Tensors& t) { delta_both_passes(ctx, t, p, chunks); },
                  DType::f32);
        const auto &found = trial.gpu_values("dlog"), &expected = trial.cpu_values("dlog");
        for (size_t t = 0; t < found.size(); ++t) ASSERT_NEAR(found[t], expected[t], 1e-4) << t;
      }
}

// A factor of e^-1e6 between two tokens leaves the finer ones around it alone.
TEST_F(CudaDeltaAttentionChunked, OneStrongDecayDoesNotBlurTheOthers) {
  LinearProblem p = delta_problem(psd(8, 2), 1, 200, 1, 1, 4);
  p.decays = true;
  GpuTrial trial = delta_trial(p);
  add_delta_gradients(trial, p);
  std::vector<double> log_decay;
  for (int t = 0; t < 200; ++t) log_decay.push_back(t % 37 == 5 ? -1e6 : -1e-3 * (t % 7));
  trial.fill("log", log_decay);
  run_delta_trial(trial, p, chunks);
}

}  // namespace
}  // namespace kata
