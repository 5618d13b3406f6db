#include "kernels/chunk_trial.h"

namespace kata {
namespace {

using namespace test;
class CudaLinearAttentionQuadratic : public GpuTest {};

// As for the chunked form: gradients of a normalised read are differences of sums, and in bf16 they read the
// rounded o.
constexpr GpuTrial::Tolerance values{2e-6, 3e-3}, gradients{2e-5, 2e-2}, decay_gradients{1e-5, 1e-2};

void forward(Context& ctx, GpuTrial::Tensors& t, const LinearProblem& p) {
  linear_attention_forward(ctx, t["o"], optional(t, "mass"), t["q"], t["k"], t["v"],
                           settings_of(p, quadratic_form), {}, {}, decay_of(t));
}

void both_passes(const LinearProblem& p) {
  SCOPED_TRACE(::testing::PrintToString(p));
  GpuTrial trial = attention_trial(p, gradients);
  trial.tolerance("o", values);
  if (p.normalised()) trial.wide_result("mass", p.mass_shape()).tolerance("mass", {2e-6, 2e-6});
  add_gradients(trial, p, decay_gradients);
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    forward(ctx, t, p);
    linear_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["d_o"], t["q"], t["k"], t["v"], t["o"],
                              optional(t, "mass"), settings_of(p, quadratic_form), decay_of(t),
                              optional(t, "dlog"));
  });
  expect_cancelled(trial, p);
}

TEST_F(CudaLinearAttentionQuadratic, EveryMap) {
  for (const auto& [map, read] : maps_and_reads(8, 7)) both_passes({map, read, 2, 70, 2, 1, 5});
}

TEST_F(CudaLinearAttentionQuadratic, EveryMapWithDecayInDocuments) {
  for (const auto& [map, read] : maps_and_reads(8, 7))
    for (const LinearProblem& p : faded({map, read, 2, 130, 2, 2, 3})) both_passes(p);
}

TEST_F(CudaLinearAttentionQuadratic, Lengths) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 200})
    for (const LinearProblem& p : faded({psd(16, 2), Read::normalised, 1, tokens, 4, 2, 17})) both_passes(p);
}

// Wide heads, and values of another width.
TEST_F(CudaLinearAttentionQuadratic, Widths) {
  both_passes({psd(64, 2), Read::normalised, 1, 100, 2, 1, 48});
  both_passes({psd(128, 2), Read::normalised, 1, 100, 1, 1, 128});
  both_passes({psd_sum(64, 4), Read::normalised, 1, 100, 2, 2, 32});
  both_passes({{MapKind::lorentz, 64, 1}, Read::normalised, 1, 100, 2, 1, 80});
  both_passes({{MapKind::identity, 64, 1}, Read::raw, 1, 100, 3, 1, 64});
}

// Heads 64 wide inside the rows of one projection: in bf16 on Hopper these are the kernels of their own. The
// weights are rounded for the product with v, and so are the gradients of scores.
TEST_F(CudaLinearAttentionQuadratic, ViewsOfAFusedProjection) {
  constexpr int64_t width = 64;
  for (const int64_t groups : {1, 2, 4})
    for (const int64_t tokens : {1, 65, 300})
      for (const int64_t kv_heads : {1, 3}) {
        const LinearProblem p{psd(width, groups), Read::normalised, 2, tokens, 3, kv_heads, width};
        SCOPED_TRACE(::testing::PrintToString(p));
        const int64_t row = (p.heads + 2 * kv_heads) * width;
        const Shape fused{p.batch, tokens, row}, o{p.batch, tokens, p.heads * width + 8};
        std::vector<double> x = random_normal(count(fused), 3);
        for (size_t i = 0; i < x.size(); ++i)  // q and k share a direction (chunk_trial.h)
          if (static_cast<int64_t>(i) % row < (p.heads + kv_heads) * width) x[i] = 0.6 * x[i] + 0.5;
        GpuTrial trial({2e-5, 1e-2});
        trial.data("x", fused).fill("x", x).data("d_o", o).result("o", o).tolerance("o", {2e-6, 5e-3});
        trial.wide_result("mass", p.mass_shape()).tolerance("mass", {2e-6, 2e-5});
        for (const char* name : {"dq", "dk", "dv"}) trial.result(name, fused);
        if (tokens == 1) trial.tolerance("dq", {INFINITY, INFINITY}).tolerance("dk", {INFINITY, INFINITY});
        trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
          const auto part = [&](const char* name, int64_t first, int64_t heads) {
            return t[name].columns(first * width, (first + heads) * width).split_last(heads, width);
          };
          const auto out = [&](const char* name) {
            return t[name].columns(8, 8 + p.heads * width).split_last(p.heads, width);
          };
          const int64_t k = p.heads, v = p.heads + kv_heads;
          const LinearAttention settings = settings_of(p, quadratic_form);
          linear_attention_forward(ctx, out("o"), t["mass"], part("x", 0, p.heads), part("x", k, kv_heads),
                                   part("x", v, kv_heads), settings);
          linear_attention_backward(ctx, part("dq", 0, p.heads), part("dk", k, kv_heads),
                                    part("dv", v, kv_heads), out("d_o"), part("x", 0, p.heads),
                                    part("x", k, kv_heads), part("x", v, kv_heads), out("o"), t["mass"],
                                    settings);
        });
      }
}

// A mass of 0 gives an output and gradients of 0, on Hopper too.
TEST_F(CudaLinearAttentionQuadratic, ZeroKeys) {
  for (const FeatureMap& map : {psd(8, 1), psd(64, 2)}) {
    const LinearProblem p{map, Read::normalised, 1, 70, 1, 1, map.width};
    SCOPED_TRACE(::testing::PrintToString(p));
    GpuTrial trial = attention_trial(p, gradients);
    trial.wide_result("mass", p.mass_shape()).fill("k", std::vector<double>(count(p.k_shape()), 0));
    trial.result("dq", p.q_shape()).result("dk", p.k_shape()).result("dv", p.v_shape());
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      forward(ctx, t, p);
      linear_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["d_o"], t["q"], t["k"], t["v"], t["o"],
                                t["mass"], settings_of(p, quadratic_form));
    });
  }
}

struct Outcome {
  std::vector<double> o, mass;
};

// What the GPU reads with the q, k and v of one token replaced, or none (-1).
Outcome read_with(const LinearProblem& p, int64_t changed, DType type) {
  GpuTrial trial = attention_trial(p, {5e-6, 5e-3});
  if (p.normalised()) trial.wide_result("mass", p.mass_shape()).tolerance("mass", {2e-6, 2e-5});
  const auto replace = [&](const char* name, const Shape& shape, std::vector<double> x) {
    const int64_t row = shape[2] * shape[3];
    for (int64_t b = 0; changed >= 0 && b < p.batch; ++b)
      for (int64_t i = 0; i < row; ++i)
        x[static_cast<size_t>((b * p.tokens + changed) * row + i)] += 1.5 + 0.25 * static_cast<double>(i % 3);
    trial.fill(name, x);
  };
  replace("q", p.q_shape(), correlated(p.q_shape(), 11));
  replace("k", p.k_shape(), correlated(p.k_shape(), 12));
  replace("v", p.v_shape(), random_normal(count(p.v_shape()), 14));
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) { forward(ctx, t, p); }, type);
  return {trial.gpu_values("o"), p.normalised() ? trial.gpu_values("mass") : std::vector<double>()};
}

// Bits of the rows [begin, end) of tokens, of every batch row.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b, const LinearProblem& p,
               int64_t begin, int64_t end) {
  const size_t row = a.size() / static_cast<size_t>(p.batch * p.tokens);
  for (int64_t i = 0; i < p.batch; ++i) {
    const size_t from = static_cast<size_t>(i * p.tokens + begin) * row;
    if (std::memcmp(&a[from], &b[from], static_cast<size_t>(end - begin) * row * sizeof(double)) != 0)
      return false;
  }
  return true;
}

TEST_F(CudaLinearAttentionQuadratic, CausalToTheBit) {
  std::vector<LinearProblem> problems;
  for (const auto& [map, read] : maps_and_reads(8, 7)) problems.push_back({map, read, 2, 140, 2, 1, 5});
  for (const int64_t groups : {1, 2, 4})  // Hopper's in bf16
    problems.push_back({psd(64, groups), Read::normalised, 2, 140, 2, 1, 64});
  for (const LinearProblem& p : problems)
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(::testing::PrintToString(p));
      const Outcome before = read_with(p, -1, type);
      for (const int64_t changed : {1, 64, 139}) {
        SCOPED_TRACE(fmt::format("token {}", changed));
        const Outcome after = read_with(p, changed, type);
        EXPECT_TRUE(same_bits(before.o, after.o, p, 0, changed));
        EXPECT_FALSE(same_bits(before.o, after.o, p, changed, changed + 1));
        EXPECT_TRUE(before.mass.empty() || same_bits(before.mass, after.mass, p, 0, changed));
      }
    }
}

}  // namespace
}  // namespace kata
