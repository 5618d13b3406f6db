#include "kernels/delta_trial.h"

namespace kata {
namespace {

using namespace test;
class CudaDeltaAttentionRecurrent : public GpuTest {};

TEST_F(CudaDeltaAttentionRecurrent, EveryMapOverASequence) {
  for (const FeatureMap& map : delta_maps(8, 7))
    for (const LinearProblem& p : faded(delta_problem(map, 2, 21, 4, 2, 5))) {
      SCOPED_TRACE(::testing::PrintToString(p));
      run_delta_trial(p, recurrent_form);
    }
}

void step_from(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p, int64_t token) {
  const auto row = [&](const char* name, int64_t heads, int64_t width) {
    return token_range(t[name], heads * width, token, {1, heads, width});
  };
  const auto gate = [&](const char* name) {
    return token_range(t[name], p.kv_heads, token, {1, p.kv_heads});
  };
  delta_attention_step(ctx, row("o", p.heads, p.value_width), row("q", p.heads, p.map.width),
                       row("k", p.kv_heads, p.map.width), row("v", p.kv_heads, p.value_width), gate("beta"),
                       t["state"], p.map, p.decays ? gate("log") : Tensor());
}

// A chunked prompt, then steps, on the GPU: one recurrent call on the CPU. Steps leave no errors.
void prompt_and_steps(LinearProblem p) {
  for (const bool decays : {false, true}) {
    p.decays = decays;
    SCOPED_TRACE(::testing::PrintToString(p));
    const int64_t prompt = p.tokens - 6;
    GpuTrial trial = delta_trial(p);
    add_delta_state(trial, p);
    trial.fill("errors", std::vector<double>(count(errors_shape(p)), 0));
    trial.tolerance("errors", {INFINITY, INFINITY});
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      if (ctx.device == Device::cpu) return delta_piece(ctx, t, p, recurrent_form, 0, p.tokens);
      delta_piece(ctx, t, p, chunked_form(64), 0, prompt);
      for (int64_t token = prompt; token < p.tokens; ++token) step_from(ctx, t, p, token);
    });
  }
}

TEST_F(CudaDeltaAttentionRecurrent, StepsAfterAPrompt) {
  for (const FeatureMap& map : delta_maps(8, 7)) prompt_and_steps(delta_problem(map, 1, 76, 2, 1, 5));
}

// More features than are built at once, several blocks of columns, many query heads of a key head.
TEST_F(CudaDeltaAttentionRecurrent, WideSteps) {
  prompt_and_steps(delta_problem(psd(64, 1), 1, 10, 2, 2, 64));
  prompt_and_steps(delta_problem(psd(72, 1), 1, 10, 6, 2, 20));
  prompt_and_steps(delta_problem({MapKind::identity, 64, 1}, 1, 10, 5, 1, 33));
}

// A recurrent call goes on from a chunked one's state and hands its own to the next.
TEST_F(CudaDeltaAttentionRecurrent, StateHandOver) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 7, 1}, psd(8, 2)}) {
    LinearProblem p = delta_problem(map, 1, 100, 4, 2, 9);
    p.decays = true;
    GpuTrial trial = delta_trial(p);
    add_delta_state(trial, p);
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      if (ctx.device == Device::cpu) return delta_piece(ctx, t, p, recurrent_form, 0, p.tokens);
      delta_piece(ctx, t, p, chunked_form(64), 0, 20);
      delta_piece(ctx, t, p, recurrent_form, 20, 31);
      delta_piece(ctx, t, p, chunked_form(64), 31, p.tokens);
    });
  }
}

// 10,000 writes of one key with beta = 1: the last value comes back.
TEST_F(CudaDeltaAttentionRecurrent, TheLastValueComesBack) {
  const LinearProblem p = delta_problem(psd(8, 1), 1, 10000, 1, 1, 4);
  GpuTrial trial = delta_trial(p);
  std::vector<double> keys = random_normal(count(p.k_shape()), 77);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = keys[i % 8];
  keys = unit_rows(p.map, keys);
  const auto values = random_normal(count(p.v_shape()), 5);
  trial.fill("k", keys).fill("q", keys).fill("v", values);
  trial.fill("beta", std::vector<double>(count(beta_shape(p)), 1));
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) { delta_forward(ctx, t, p, recurrent_form); },
            DType::f32);
  const std::vector<double>& o = trial.gpu_values("o");
  for (size_t i = 0; i < o.size(); ++i) ASSERT_NEAR(o[i], values[i], 3e-5) << i;
}

}  // namespace
}  // namespace kata
