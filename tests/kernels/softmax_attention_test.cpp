#include "ops/softmax_attention.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaSoftmaxAttention : public test::GpuTest {};

struct Problem {
  int64_t batch, tokens, heads, kv_heads, width, value_width;
  bool documents = false;
  double scale = 1;  // of q and k
};

std::vector<int32_t> starts_of(const Problem& p) {
  std::vector<int32_t> starts;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t t = 0; t < p.tokens; ++t)
      starts.push_back(static_cast<int32_t>(t < 5 + b ? 0 : t < 64 ? 5 + b : 64));
  return starts;
}

void run(const Problem& p) {
  SCOPED_TRACE(fmt::format("B {} T {} H {}/{} d {} dv {}{} scale {}", p.batch, p.tokens, p.heads, p.kv_heads,
                           p.width, p.value_width, p.documents ? " documents" : "", p.scale));
  // bf16: o is rounded twice (weights and result); the gradients go through products of rounded numbers.
  GpuTrial trial({1e-5, 5e-3});
  const Shape q{p.batch, p.tokens, p.heads, p.width}, k{p.batch, p.tokens, p.kv_heads, p.width};
  const Shape v{p.batch, p.tokens, p.kv_heads, p.value_width}, o{p.batch, p.tokens, p.heads, p.value_width};
  trial.data("q", q, p.scale).data("k", k, p.scale).data("v", v).data("do", o);
  trial.result("o", o).wide_result("lse", {p.batch, p.tokens, p.heads});
  trial.result("dq", q).result("dk", k).result("dv", v);
  for (const char* name : {"dq", "dk", "dv"}) trial.tolerance(name, {2e-5, 1.5e-2});
  if (p.documents) trial.ids("starts", {p.batch, p.tokens}, starts_of(p));
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const double scale = 1 / std::sqrt(static_cast<double>(p.width));
    const Tensor starts = p.documents ? t["starts"] : Tensor();
    softmax_attention_forward(ctx, t["o"], t["lse"], t["q"], t["k"], t["v"], scale, starts);
    softmax_attention_backward(ctx, t["dq"], t["dk"], t["dv"], t["do"], t["q"], t["k"], t["v"], t["o"],
                               t["lse"], scale, starts);
  });
}

TEST_F(CudaSoftmaxAttention, ShapesOfTheTiles) {
  for (const Problem& p :
       {Problem{2, 3, 1, 1, 8, 8}, Problem{1, 63, 2, 1, 16, 24}, Problem{1, 64, 2, 2, 40, 16},
        Problem{2, 65, 4, 2, 64, 64}, Problem{1, 200, 2, 1, 128, 128}, Problem{1, 131, 3, 1, 64, 32}})
    run(p);
}
TEST_F(CudaSoftmaxAttention, Documents) {
  run({2, 150, 2, 1, 32, 32, true});
  run({2, 150, 2, 2, 64, 64, true});
}
TEST_F(CudaSoftmaxAttention, LargeScores) {
  run({1, 100, 1, 1, 32, 32, false, 6});
}

TEST_F(CudaSoftmaxAttention, QueriesAtTheEndOfACacheAndOneToken) {
  const int64_t batch = 2, keys = 90, before = 70, heads = 4, kv_heads = 2, width = 32;
  GpuTrial trial({1e-5, 5e-3});
  trial.data("q", {batch, keys - before, heads, width}).data("k", {batch, keys, kv_heads, width});
  trial.data("v", {batch, keys, kv_heads, width})
      .data("one q", {batch, heads, width})
      .ids("first", {batch}, {0, 41});
  trial.result("o", {batch, keys - before, heads, width}).wide_result("lse", {batch, keys - before, heads});
  trial.result("one o", {batch, heads, width}).result("few o", {batch, heads, width});
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    softmax_attention_forward(ctx, t["o"], t["lse"], t["q"], t["k"], t["v"], 0.2, {}, before);
    softmax_attention_step(ctx, t["one o"], t["one q"], t["k"], t["v"], keys, 0.2, t["first"]);
    softmax_attention_step(ctx, t["few o"], t["one q"], t["k"], t["v"], 2, 0.2);
  });
}

}  // namespace
}  // namespace kata
