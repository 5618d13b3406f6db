#include "kernels/chunk_trial.h"

namespace kata {
namespace {

using namespace test;
class CudaLinearAttentionChunked : public GpuTest {};

// The gradients of a normalised read are differences of sums, <do, v> - <do, o>. In bf16 they read the
// rounded o, as any implementation that keeps o in bf16 must: its error of 1e-3 is one of a small difference.
constexpr GpuTrial::Tolerance values{2e-6, 3e-3}, gradients{2e-5, 2e-2}, decay_gradients{1e-5, 1e-2};

void both_passes(const LinearProblem& p, int64_t chunk) {
  GpuTrial trial = attention_trial(p, gradients);
  trial.tolerance("o", values);
  if (p.normalised()) trial.wide_result("mass", p.mass_shape()).tolerance("mass", {2e-6, 2e-6});
  add_gradients(trial, p, decay_gradients);
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const LinearAttention settings = settings_of(p, chunked_form(chunk));
    const Tensor mass = optional(t, "mass");
    linear_attention_forward(ctx, t["o"], mass, t["q"], t["k"], t["v"], settings, {}, {}, decay_of(t));
    linear_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["d_o"], t["q"], t["k"], t["v"], t["o"], mass,
                              settings, decay_of(t), optional(t, "dlog"));
  });
  expect_cancelled(trial, p);
}

TEST_F(CudaLinearAttentionChunked, EveryMap) {
  for (const auto& [map, read] : maps_and_reads(8, 7)) {
    const LinearProblem p{map, read, 2, 70, 2, 1, 5};
    SCOPED_TRACE(::testing::PrintToString(p));
    both_passes(p, 16);
  }
}

TEST_F(CudaLinearAttentionChunked, EveryMapWithDecayInDocuments) {
  for (const auto& [map, read] : maps_and_reads(8, 7))
    for (const LinearProblem& p : faded({map, read, 2, 130, 2, 2, 3})) {
      SCOPED_TRACE(::testing::PrintToString(p));
      both_passes(p, 64);
    }
}

TEST_F(CudaLinearAttentionChunked, LengthsAndChunks) {
  for (const int64_t tokens : {1, 63, 64, 65, 130})
    for (const int64_t chunk : {1, 16, 64, 128}) {
      const LinearProblem p{psd(16, 2), Read::normalised, 1, tokens, 4, 2, 17};
      SCOPED_TRACE(fmt::format("{} tokens in chunks of {}", tokens, chunk));
      both_passes(p, chunk);
    }
}

// 2080 features in chunks of 320 tokens, so of five tiles; and more columns of values than a tile has.
TEST_F(CudaLinearAttentionChunked, WideStates) {
  for (const LinearProblem& p : faded({psd(64, 1), Read::normalised, 1, 700, 1, 1, 64})) {
    SCOPED_TRACE(::testing::PrintToString(p));
    both_passes(p, 64);
  }
  both_passes({psd(32, 2), Read::normalised, 1, 140, 2, 1, 128}, 64);
  both_passes({psd(32, 2), Read::raw, 1, 140, 2, 1, 80}, 64);
  both_passes({{MapKind::lorentz, 128, 1}, Read::normalised, 1, 140, 1, 1, 64}, 64);
}

// q, k and v are parts of one projection's rows.
TEST_F(CudaLinearAttentionChunked, Views) {
  const LinearProblem p{psd(16, 2), Read::normalised, 2, 70, 4, 2, 16};
  const int64_t row = (p.heads + 2 * p.kv_heads) * 16;
  GpuTrial trial(gradients);
  trial.data("fused", {p.batch, p.tokens, row}).data("d_o", p.o_shape());
  trial.fill("fused", correlated({p.batch, p.tokens, row}, 3));
  trial.result("dfused", {p.batch, p.tokens, row + 16})
      .result("o", p.o_shape())
      .wide_result("mass", p.mass_shape());
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const auto part = [&](const Tensor& x, int64_t first, int64_t heads) {
      return x.columns(first * 16, (first + heads) * 16).split_last(heads, 16);
    };
    const LinearAttention settings = settings_of(p, chunked_form(64));
    const Tensor &x = t["fused"], &dx = t["dfused"];
    linear_attention_forward(ctx, t["o"], t["mass"], part(x, 0, 4), part(x, 4, 2), part(x, 6, 2), settings);
    linear_attention_backward(ctx, part(dx, 0, 4), part(dx, 4, 2), part(dx, 6, 2), t["d_o"], part(x, 0, 4),
                              part(x, 4, 2), part(x, 6, 2), t["o"], t["mass"], settings);
  });
}

// A mass of 0 gives an output and gradients of 0.
TEST_F(CudaLinearAttentionChunked, ZeroKeys) {
  const LinearProblem p{psd(8, 1), Read::normalised, 1, 70, 1, 1, 4};
  GpuTrial trial = attention_trial(p, gradients);
  trial.wide_result("mass", p.mass_shape()).fill("k", std::vector<double>(count(p.k_shape()), 0));
  trial.result("dq", p.q_shape()).result("dk", p.k_shape()).result("dv", p.v_shape());
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const LinearAttention settings = settings_of(p, chunked_form(64));
    linear_attention_forward(ctx, t["o"], t["mass"], t["q"], t["k"], t["v"], settings);
    linear_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["d_o"], t["q"], t["k"], t["v"], t["o"],
                              t["mass"], settings);
  });
}

// Two calls on the GPU are one on the CPU.
TEST_F(CudaLinearAttentionChunked, StateHandOver) {
  for (const auto& [map, read] : maps_and_reads(8, 7))
    for (const bool decays : {false, true})
      for (const int64_t cut : {1, 64, 100}) {
        LinearProblem p{map, read, 1, 130, 2, 1, 5};
        p.decays = decays;
        SCOPED_TRACE(::testing::PrintToString(p));
        GpuTrial trial = attention_trial(p, values);
        const Shape state = state_shape(p.map, p.read, p.size());
        trial.wide_result("state", state).tolerance("state", {2e-6, 2e-6});
        trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
          const bool whole = ctx.device == Device::cpu;
          if (!whole) forward_piece(ctx, t, p, chunked_form(64), 0, cut);
          forward_piece(ctx, t, p, chunked_form(64), whole ? 0 : cut, p.tokens);
        });
      }
}

}  // namespace
}  // namespace kata
