#include "kernels/chunk_trial.h"

namespace kata {
namespace {

using namespace test;
class CudaLinearAttentionRecurrent : public GpuTest {};

// As for the chunked form.
constexpr GpuTrial::Tolerance values{2e-6, 3e-3}, gradients{2e-5, 2e-2}, decay_gradients{1e-5, 1e-2};

TEST_F(CudaLinearAttentionRecurrent, EveryMapOverASequence) {
  for (const auto& [map, read] : maps_and_reads(8, 7))
    for (const LinearProblem& p : faded({map, read, 2, 21, 4, 2, 5})) {
      SCOPED_TRACE(::testing::PrintToString(p));
      GpuTrial trial = attention_trial(p, gradients);
      trial.tolerance("o", values);
      if (p.normalised()) trial.wide_result("mass", p.mass_shape()).tolerance("mass", {2e-6, 2e-6});
      add_gradients(trial, p, decay_gradients);
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const LinearAttention settings = settings_of(p, recurrent_form);
        const Tensor mass = optional(t, "mass");
        linear_attention_forward(ctx, t["o"], mass, t["q"], t["k"], t["v"], settings, {}, {}, decay_of(t));
        linear_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["d_o"], t["q"], t["k"], t["v"], t["o"],
                                  mass, settings, decay_of(t), optional(t, "dlog"));
      });
      expect_cancelled(trial, p);
    }
}

void step_from(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p, int64_t token) {
  const auto row = [&](const char* name, int64_t heads, int64_t width) {
    return token_range(t[name], heads * width, token, {1, heads, width});
  };
  linear_attention_step(ctx, row("o", p.heads, p.value_width), row("q", p.heads, p.map.width),
                        row("k", p.kv_heads, p.map.width), row("v", p.kv_heads, p.value_width), t["state"],
                        p.map, p.read,
                        p.decays ? token_range(t["log"], p.kv_heads, token, {1, p.kv_heads}) : Tensor());
}

// A chunked prompt, then steps, on the GPU: one recurrent call on the CPU.
void prompt_and_steps(LinearProblem p) {
  for (const bool decays : {false, true}) {
    p.decays = decays;
    SCOPED_TRACE(::testing::PrintToString(p));
    const int64_t prompt = p.tokens - 6;
    GpuTrial trial = attention_trial(p, values);
    trial.wide_result("state", state_shape(p.map, p.read, p.size())).tolerance("state", {2e-6, 2e-6});
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      if (ctx.device == Device::cpu) return forward_piece(ctx, t, p, recurrent_form, 0, p.tokens);
      forward_piece(ctx, t, p, chunked_form(64), 0, prompt);
      for (int64_t token = prompt; token < p.tokens; ++token) step_from(ctx, t, p, token);
    });
  }
}

TEST_F(CudaLinearAttentionRecurrent, StepsAfterAPrompt) {
  for (const auto& [map, read] : maps_and_reads(8, 7)) prompt_and_steps({map, read, 1, 76, 2, 1, 5});
}

// Several slices of features, two tiles of columns, and more query heads than read a row at once.
TEST_F(CudaLinearAttentionRecurrent, WideSteps) {
  prompt_and_steps({psd(64, 1), Read::normalised, 1, 10, 2, 2, 64});
  prompt_and_steps({psd(32, 2), Read::normalised, 1, 10, 12, 2, 128});
  prompt_and_steps({{MapKind::identity, 64, 1}, Read::raw, 1, 10, 5, 1, 96});
}

}  // namespace
}  // namespace kata
