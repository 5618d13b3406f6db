#include "ops/adamw.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaAdamW : public test::GpuTest {};

TEST_F(CudaAdamW, StepsOfAnyLength) {
  for (const int64_t n : {1, 3, 4, 1000, 4099})
    for (const int64_t step : {1, 7, 100000}) {
      SCOPED_TRACE(fmt::format("{} elements, step {}", n, step));
      const auto count = static_cast<size_t>(n);
      std::vector<double> second = test::random_normal(count, 5);
      for (double& x : second) x *= x;
      GpuTrial trial({1e-6, 1e-6});
      trial.wide("g", {n}).wide_result("p", {n}).wide_result("m", {n}).wide_result("v", {n});
      trial.fill("p", test::random_normal(count, 6))
          .fill("m", test::random_normal(count, 7))
          .fill("v", second);
      trial.run(
          [&](Context& ctx, GpuTrial::Tensors& t) {
            AdamWSettings settings{.lr = 3e-3, .weight_decay = 0.1, .gradient_scale = 0.3};
            settings.step = step;
            adamw(ctx, t["p"], t["m"], t["v"], t["g"], settings);
          },
          DType::f32);
    }
}

// The copy is the new value, rounded once.
TEST_F(CudaAdamW, WritesTheCopy) {
  const int64_t n = 1027;
  GpuTrial trial({1e-6, 3e-3});
  trial.wide("g", {n}).wide_result("p", {n}).wide_result("m", {n}).wide_result("v", {n}).result("copy", {n});
  for (const char* name : {"m", "v"}) trial.fill(name, std::vector<double>(static_cast<size_t>(n), 0));
  trial.fill("p", test::random_normal(static_cast<size_t>(n), 6));
  trial.run(
      [&](Context& ctx, GpuTrial::Tensors& t) {
        const bool gpu = ctx.device == Device::cuda;
        adamw(ctx, t["p"], t["m"], t["v"], t["g"], {.lr = 1e-2}, gpu ? t["copy"] : Tensor());
        if (!gpu && !ctx.planning()) std::copy_n(t["p"].as<double>(), n, t["copy"].as<double>());
      },
      DType::bf16);
  const auto &p = trial.gpu_values("p"), &copy = trial.gpu_values("copy");
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_EQ(copy[i], static_cast<double>(to_float(to_bf16(static_cast<float>(p[i])))));
}

}  // namespace
}  // namespace kata
