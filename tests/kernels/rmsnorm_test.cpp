#include "ops/rmsnorm.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaRmsNorm : public test::GpuTest {};

constexpr double eps = 1e-6;

GpuTrial trial_of(int64_t rows, int64_t width, double scale = 1) {
  GpuTrial trial;
  trial.data("x", {rows, width}, scale).data("dy", {rows, width}).wide("weight", {width});
  trial.result("y", {rows, width}).result("dx", {rows, width}).wide_result("rstd", {rows});
  trial.wide_result("dweight", {width}).fill("dweight", test::random_normal(static_cast<size_t>(width), 90));
  return trial;
}

void both_passes(Context& ctx, GpuTrial::Tensors& t, bool accumulate) {
  rmsnorm_forward(ctx, t["y"], t["rstd"], t["x"], t["weight"], eps);
  rmsnorm_backward(ctx, t["dx"], t["dweight"], t["dy"], t["x"], t["rstd"], t["weight"], accumulate);
}

TEST_F(CudaRmsNorm, OddShapes) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 5},
                                                                            {1, 64},
                                                                            {7, 8},
                                                                            {3, 33},
                                                                            {100, 65},
                                                                            {513, 128},
                                                                            {70, 1024},
                                                                            {5, 2816},
                                                                            {2, 12288},
                                                                            {3, 1000},
                                                                            {6, 1021},
                                                                            {200, 24}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, width));
    trial_of(rows, width).run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, false); });
  }
}

TEST_F(CudaRmsNorm, SmallAndLargeRows) {
  for (const double scale : {1e-12, 1e-3, 1e12}) {
    SCOPED_TRACE(scale);
    trial_of(9, 64, scale).run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, false); });
  }
}

TEST_F(CudaRmsNorm, AddsToTheGradient) {
  GpuTrial trial = trial_of(40, 256);
  trial.fill("dx", test::random_normal(40 * 256, 91));
  trial.run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, true); });
}

TEST_F(CudaRmsNorm, GradientInPlace) {
  GpuTrial trial = trial_of(40, 64);
  trial.fill("dx", test::random_normal(40 * 64, 91));
  trial.run([](Context& ctx, GpuTrial::Tensors& t) {
    rmsnorm_forward(ctx, t["y"], t["rstd"], t["x"], t["weight"], eps);
    rmsnorm_backward(ctx, t["dx"], t["dweight"], t["dx"], t["x"], t["rstd"], t["weight"], false);
  });
}

// The heads of a part of a fused projection; the third width does not allow packs.
TEST_F(CudaRmsNorm, HeadsInsideFusedRows) {
  for (const int64_t width : {64, 16, 6}) {
    SCOPED_TRACE(width);
    const int64_t rows = 37, heads = 3;
    GpuTrial trial;
    trial.data("fused", {rows, 4 * heads * width}).data("dy", {rows, heads, width}).wide("weight", {width});
    trial.result("y", {rows, heads, width}).result("dfused", {rows, 4 * heads * width});
    trial.wide_result("rstd", {rows * heads}).wide_result("dweight", {width});
    trial.fill("dweight", std::vector<double>(static_cast<size_t>(width), 0.5));
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      const auto part = [&](const Tensor& x) {
        return x.columns(heads * width, 2 * heads * width).split_last(heads, width);
      };
      rmsnorm_forward(ctx, t["y"], t["rstd"], part(t["fused"]), t["weight"], eps);
      rmsnorm_backward(ctx, part(t["dfused"]), t["dweight"], t["dy"], part(t["fused"]), t["rstd"],
                       t["weight"], false);
    });
  }
}

}  // namespace
}  // namespace kata
