// The delta rule's sizes that go to the tensor cores in bf16: values of 64 with identity features of 64, or
// with psd of rows of 64 (without states).
#include "kernels/delta_trial.h"

namespace kata {
namespace {

using namespace test;
class CudaDeltaAttentionMma : public GpuTest {};

const FormChoice chunks = chunked_form(64);
const FeatureMap identity = {MapKind::identity, 64, 1};
const std::vector<FeatureMap> maps = {identity, psd(64, 1), psd(64, 2)};

GpuTrial mma_trial(const LinearProblem& p) {
  GpuTrial trial = delta_trial(p);
  add_delta_gradients(trial, p);
  if (p.map.kind == MapKind::identity) add_delta_state(trial, p);
  return trial;
}
void run_mma_trial(GpuTrial& trial, const LinearProblem& p) {
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) { delta_both_passes(ctx, t, p, chunks); }, DType::bf16);
}

TEST_F(CudaDeltaAttentionMma, LengthsWithDecayInDocuments) {
  for (const FeatureMap& map : maps)
    for (const int64_t tokens : {1, 63, 64, 65, 200, 513})
      for (const LinearProblem& p : faded(delta_problem(map, tokens < 200 ? 2 : 1, tokens, 1, 1, 64))) {
        if (p.decays && tokens == 1) continue;  // one token fades nothing
        SCOPED_TRACE(::testing::PrintToString(p));
        GpuTrial trial = mma_trial(p);
        run_mma_trial(trial, p);
      }
}

TEST_F(CudaDeltaAttentionMma, GroupsOfHeads) {
  for (const FeatureMap& map : {identity, psd(64, 1), psd(64, 4)}) {
    LinearProblem p = delta_problem(map, 1, 150, 6, 2, 64);
    p.decays = true;
    SCOPED_TRACE(::testing::PrintToString(p));
    GpuTrial trial = mma_trial(p);
    run_mma_trial(trial, p);
  }
}

// 66 chunks: states of two segments, the second one short.
TEST_F(CudaDeltaAttentionMma, SegmentsOfStates) {
  LinearProblem p = delta_problem(identity, 1, 64 * 65 + 5, 1, 1, 64);
  p.decays = true;
  p.documents = true;
  GpuTrial trial = mma_trial(p);
  run_mma_trial(trial, p);
}

// Gates at their ends, and near them: beta of 0, 1 and next to both.
TEST_F(CudaDeltaAttentionMma, Gates) {
  for (const FeatureMap& map : {identity, psd(64, 1)})
    for (const double beta : {1e-6, 0.02, 0.98, 1 - 1e-6}) {
      LinearProblem p = delta_problem(map, 1, 200, 1, 1, 64);
      p.decays = true;
      SCOPED_TRACE(beta);
      GpuTrial trial = mma_trial(p);
      std::vector<double> betas(count(beta_shape(p)), beta);
      for (size_t i = 0; i < betas.size(); i += 9) betas[i] = i % 2 == 0 ? 0 : 1;
      trial.fill("beta", betas);
      run_mma_trial(trial, p);
    }
}

TEST_F(CudaDeltaAttentionMma, Decays) {
  for (const FeatureMap& map : {identity, psd(64, 1)})
    for (const double log : {-1e-7, -1e-3, -0.5, -20., -1e6}) {
      LinearProblem p = delta_problem(map, 1, 200, 1, 1, 64);
      p.decays = true;
      SCOPED_TRACE(log);
      GpuTrial trial = mma_trial(p);
      std::vector<double> logs(count(beta_shape(p)), -1e-3);
      for (size_t i = 0; i < logs.size(); ++i)
        if (log > -1 || i % 37 == 5) logs[i] = log;
      trial.fill("log", logs);
      run_mma_trial(trial, p);
    }
}

// Few keys, all of whose entries are the same in bf16 and a power of 2, so that they are unit rows exactly.
std::vector<double> sign_keys(const LinearProblem& p, int64_t period) {
  const std::vector<double> signs = random_normal(count(p.k_shape()), 77);
  std::vector<double> keys;
  for (int64_t t = 0; t < p.tokens; ++t)
    for (int64_t j = 0; j < 64; ++j)
      keys.push_back(signs[static_cast<size_t>(t / period * 64 + j)] < 0 ? -0.125 : 0.125);
  return keys;
}

// One key 300 times, with full strength: every value comes back.
TEST_F(CudaDeltaAttentionMma, TheLastValueComesBack) {
  for (const FeatureMap& map : maps) {
    const LinearProblem p = delta_problem(map, 1, 300, 1, 1, 64);
    SCOPED_TRACE(::testing::PrintToString(p));
    GpuTrial trial = mma_trial(p);
    const std::vector<double> keys = unit_rows(map, sign_keys(p, p.tokens));
    trial.fill("k", keys).fill("q", keys).fill("beta", std::vector<double>(count(beta_shape(p)), 1));
    run_mma_trial(trial, p);
  }
}

// Keys that come back, in a chunk and over chunks, exactly and as they are rounded. The decay's gradient
// nearly cancels where one key is written again and again.
TEST_F(CudaDeltaAttentionMma, KeysThatComeBack) {
  for (const FeatureMap& map : maps)
    for (const int64_t period : {1, 40, 300})
      for (const bool exact : {false, true}) {
        LinearProblem p = delta_problem(map, 1, 300, 1, 1, 64);
        p.decays = true;
        SCOPED_TRACE(fmt::format("{} tokens a key{}", period, exact ? ", exact" : ""));
        GpuTrial trial = mma_trial(p);
        std::vector<double> keys = sign_keys(p, period);
        const std::vector<double> away = random_normal(keys.size(), 78, 1e-2);
        for (size_t i = 0; !exact && i < keys.size(); ++i) keys[i] += away[i];
        trial.fill("k", unit_rows(map, keys)).tolerance("dlog", {2e-5, 1e-3});
        run_mma_trial(trial, p);
      }
}

TEST_F(CudaDeltaAttentionMma, StateHandOver) {
  for (const bool decays : {false, true})
    for (const int64_t cut : {1, 64, 100}) {
      LinearProblem p = delta_problem(identity, 1, 130, 2, 1, 64);
      p.decays = decays;
      SCOPED_TRACE(::testing::PrintToString(p));
      GpuTrial trial = delta_trial(p);
      add_delta_state(trial, p);
      trial.run(
          [&](Context& ctx, GpuTrial::Tensors& t) {
            const bool whole = ctx.device == Device::cpu;
            if (!whole) delta_piece(ctx, t, p, chunks, 0, cut);
            delta_piece(ctx, t, p, chunks, whole ? 0 : cut, p.tokens);
          },
          DType::bf16);
    }
}

// Parts of one projection's rows; those of an odd width are not read 16 bytes at a time.
TEST_F(CudaDeltaAttentionMma, Views) {
  for (const FeatureMap& map : maps)
    for (const int64_t more : {8, 3}) {
      const LinearProblem p = delta_problem(map, 2, 70, 2, 1, 64);
      SCOPED_TRACE(fmt::format("{}, {} more", ::testing::PrintToString(p), more));
      GpuTrial trial(delta_values);
      trial.data("fused", {p.batch, p.tokens, 4 * 64 + more}, 0.12).data("d_o", p.o_shape());
      trial.wide("beta", beta_shape(p)).fill("beta", random_betas(count(beta_shape(p)), 4));
      trial.result("dfused", {p.batch, p.tokens, 4 * 64 + more}).result("o", p.o_shape());
      trial.wide_result("errors", errors_shape(p)).wide_result("dbeta", beta_shape(p));
      trial.tolerance("errors", delta_wide_of(p)).tolerance("dbeta", delta_wide_gradients_of(p));
      trial.run(
          [&](Context& ctx, GpuTrial::Tensors& t) {
            const auto part = [&](const Tensor& x, int64_t first, int64_t heads) {
              return x.columns(first * 64, (first + heads) * 64).split_last(heads, 64);
            };
            const Tensor &x = t["fused"], &dx = t["dfused"];
            const DeltaAttention settings = delta_settings(p, chunks);
            delta_attention_forward(ctx, t["o"], t["errors"], part(x, 0, 2), part(x, 2, 1), part(x, 3, 1),
                                    t["beta"], settings);
            delta_attention_backward(ctx, part(dx, 0, 2), part(dx, 2, 1), part(dx, 3, 1), t["dbeta"],
                                     t["d_o"], part(x, 0, 2), part(x, 2, 1), part(x, 3, 1), t["beta"],
                                     t["errors"], settings);
          },
          DType::bf16);
    }
}

}  // namespace
}  // namespace kata
