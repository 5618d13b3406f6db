#include "ops/l2norm.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaL2Norm : public test::GpuTest {};

constexpr double eps = 1e-6;

GpuTrial trial_of(int64_t rows, int64_t width, double scale = 1) {
  GpuTrial trial;
  trial.data("x", {rows, width}, scale).data("dy", {rows, width});
  trial.result("y", {rows, width}).result("dx", {rows, width});
  trial.wide_result("rnorm", {rows}).tolerance("rnorm", {2e-6, 2e-6});
  return trial;
}

void both_passes(Context& ctx, GpuTrial::Tensors& t, bool accumulate) {
  l2norm_forward(ctx, t["y"], t["rnorm"], t["x"], eps);
  l2norm_backward(ctx, t["dx"], t["dy"], t["x"], t["rnorm"], accumulate);
}

// Rows for 4 to 32 lanes; widths without packs, and more than the lanes hold at once. With a width of 1 the
// gradient would be nothing but rounding.
TEST_F(CudaL2Norm, OddShapes) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 2},
                                                                            {1, 64},
                                                                            {7, 8},
                                                                            {3, 33},
                                                                            {5, 12},
                                                                            {100, 65},
                                                                            {513, 128},
                                                                            {1001, 16},
                                                                            {3, 1000},
                                                                            {2, 4096}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, width));
    trial_of(rows, width).run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, false); });
  }
}

// eps decides, has a say, and has none.
TEST_F(CudaL2Norm, SmallAndLargeRows) {
  for (const double scale : {1e-15, 1e-4, 1e12}) {
    SCOPED_TRACE(scale);
    trial_of(9, 64, scale).run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, false); });
  }
}

TEST_F(CudaL2Norm, ZeroRowsAmongOthers) {
  GpuTrial trial = trial_of(12, 24);
  std::vector<double> x = test::random_normal(12 * 24, 5);
  std::fill(x.begin() + 24, x.begin() + 4 * 24, 0);
  trial.fill("x", x).run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, false); });
}

TEST_F(CudaL2Norm, AddsToTheGradient) {
  GpuTrial trial = trial_of(40, 256);
  trial.fill("dx", test::random_normal(40 * 256, 91));
  trial.run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, true); });
}

TEST_F(CudaL2Norm, InPlace) {
  for (const int64_t width : {33, 64}) {
    GpuTrial trial;
    const auto n = static_cast<size_t>(19 * width);
    trial.result("x", {19, width}).fill("x", test::random_normal(n, 5)).wide_result("rnorm", {19});
    trial.tolerance("rnorm", {2e-6, 2e-6});
    trial.run(
        [](Context& ctx, GpuTrial::Tensors& t) { l2norm_forward(ctx, t["x"], t["rnorm"], t["x"], eps); });
  }
}

// The heads of a part of a fused projection; the last width does not allow packs.
TEST_F(CudaL2Norm, HeadsInsideFusedRows) {
  for (const int64_t width : {64, 16, 6})
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", width, accumulate ? ", added" : ""));
      const int64_t rows = 37, heads = 3, row = 4 * heads * width;
      GpuTrial trial;
      trial.data("fused", {rows, row}).data("dy", {rows, heads, width});
      trial.result("y", {rows, heads, width}).result("dfused", {rows, row});
      trial.wide_result("rnorm", {rows * heads}).tolerance("rnorm", {2e-6, 2e-6});
      if (accumulate) trial.fill("dfused", test::random_normal(static_cast<size_t>(rows * row), 91));
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const auto part = [&](const Tensor& x) {
          return x.columns(heads * width, 2 * heads * width).split_last(heads, width);
        };
        l2norm_forward(ctx, t["y"], t["rnorm"], part(t["fused"]), eps);
        l2norm_backward(ctx, part(t["dfused"]), t["dy"], part(t["fused"]), t["rnorm"], accumulate);
      });
    }
}

}  // namespace
}  // namespace kata
