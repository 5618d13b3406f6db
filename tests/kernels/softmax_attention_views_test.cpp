// Softmax attention on the views that models hand it: heads 64 wide inside the rows of one projection, which
// in bf16 on Hopper have kernels of their own.
#include "ops/softmax_attention.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaSoftmaxAttentionViews : public test::GpuTest {};

constexpr int64_t width = 64;
constexpr double scale = 0.125;

std::vector<double> numbers(const Shape& shape, uint64_t seed) {
  return test::random_normal(static_cast<size_t>(shape.numel()), seed);
}

// Gradients of scores are differences, <do, v> - <do, o>, which in bf16 read the rounded o. With one token
// they are 0 in exact arithmetic.
TEST_F(CudaSoftmaxAttentionViews, OfAFusedProjection) {
  for (const int64_t tokens : {1, 65, 300})
    for (const int64_t kv_heads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} tokens, {} key heads", tokens, kv_heads));
      const int64_t batch = 2, heads = 3, v = heads + kv_heads;
      const Shape fused{batch, tokens, (heads + 2 * kv_heads) * width}, o{batch, tokens, heads * width + 8};
      GpuTrial trial({2e-5, 1e-2});
      trial.data("x", fused).data("d_o", o).result("o", o).tolerance("o", {1e-5, 5e-3});
      trial.wide_result("lse", {batch, tokens, heads}).tolerance("lse", {1e-5, 1e-5});
      for (const char* name : {"dq", "dk", "dv"}) trial.result(name, fused);
      if (tokens == 1) trial.tolerance("dq", {INFINITY, INFINITY}).tolerance("dk", {INFINITY, INFINITY});
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const auto part = [&](const char* name, int64_t first, int64_t count) {
          return t[name].columns(first * width, (first + count) * width).split_last(count, width);
        };
        const auto out = [&](const char* name) {
          return t[name].columns(8, 8 + heads * width).split_last(heads, width);
        };
        const Tensor q = part("x", 0, heads), k = part("x", heads, kv_heads), value = part("x", v, kv_heads);
        softmax_attention_forward(ctx, out("o"), t["lse"], q, k, value, scale);
        softmax_attention_backward(ctx, part("dq", 0, heads), part("dk", heads, kv_heads),
                                   part("dv", v, kv_heads), out("d_o"), q, k, value, out("o"), t["lse"],
                                   scale);
      });
    }
}

// Places that allow no 16-byte copies.
TEST_F(CudaSoftmaxAttentionViews, FromOddColumns) {
  const Shape fused{2, 70, 3 * width + 3}, o{2, 70, width + 1};
  GpuTrial trial({2e-5, 1.5e-2});
  trial.data("x", fused).data("d_o", o).result("o", o).result("dx", fused).tolerance("o", {1e-5, 5e-3});
  trial.wide_result("lse", {2, 70, 1}).tolerance("lse", {1e-5, 1e-5});
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const auto part = [&](const char* name, int64_t from) {
      return t[name].columns(from, from + width).split_last(1, width);
    };
    const Tensor q = part("x", 1), k = part("x", width + 2), v = part("x", 2 * width + 3);
    softmax_attention_forward(ctx, part("o", 1), t["lse"], q, k, v, scale);
    softmax_attention_backward(ctx, part("dx", 1), part("dx", width + 2), part("dx", 2 * width + 3),
                               part("d_o", 1), q, k, v, part("o", 1), t["lse"], scale);
  });
}

// Replacing a token changes no bit before it.
TEST_F(CudaSoftmaxAttentionViews, CausalToTheBit) {
  const int64_t tokens = 140, row = 3 * width;
  const auto read_with = [&](int64_t changed, DType type) {
    std::vector<double> x = numbers({1, tokens, row}, 1);
    for (int64_t i = 0; changed >= 0 && i < row; ++i) x[static_cast<size_t>(changed * row + i)] += 1.5;
    GpuTrial trial({1e-5, 5e-3});
    trial.data("x", {1, tokens, row}).fill("x", x).result("o", {1, tokens, width});
    trial.wide_result("lse", {1, tokens, 1}).tolerance("lse", {1e-5, 1e-5});
    trial.run(
        [&](Context& ctx, GpuTrial::Tensors& t) {
          const auto part = [&](int64_t i) {
            return t["x"].columns(i * width, (i + 1) * width).split_last(1, width);
          };
          softmax_attention_forward(ctx, t["o"].split_last(1, width), t["lse"], part(0), part(1), part(2),
                                    scale);
        },
        type);
    return trial.gpu_values("o");
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::vector<double> before = read_with(-1, type);
    for (const int64_t changed : {1, 64, 139}) {
      SCOPED_TRACE(fmt::format("{}, token {}", name_of(type), changed));
      const std::vector<double> after = read_with(changed, type);
      const auto same = static_cast<size_t>(changed * width);
      EXPECT_EQ(0, std::memcmp(before.data(), after.data(), same * sizeof(double)));
      EXPECT_NE(0, std::memcmp(&before[same], &after[same], width * sizeof(double)));
    }
  }
}

}  // namespace
}  // namespace kata
