#include "ops/sigmoid.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaSigmoid : public test::GpuTest {};

// y is Wide and rounded to fp32 alone.
GpuTrial trial_of(int64_t rows, int64_t width, double scale = 2) {
  GpuTrial trial;
  trial.data("x", {rows, width}, scale).wide("dy", {rows, width});
  trial.wide_result("y", {rows, width}).tolerance("y", {2e-6, 2e-6}).result("dx", {rows, width});
  return trial;
}

void both_passes(Context& ctx, GpuTrial::Tensors& t) {
  sigmoid_forward(ctx, t["y"], t["x"]);
  sigmoid_backward(ctx, t["dx"], t["dy"], t["y"]);
}

TEST_F(CudaSigmoid, OddShapes) {
  for (const auto& [rows, width] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {100, 4}, {257, 1}, {513, 16}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, width));
    trial_of(rows, width).run(both_passes);
  }
}

// Among others: 1 - y of a y near 1 has few digits left, in dx alone.
TEST_F(CudaSigmoid, FarOut) {
  GpuTrial trial = trial_of(4, 4);
  trial.fill("x", {0, 0.5, -1, 2, 20, -20, 80, -80, 89, -89, 104, -104, 1e4, -1e4, 3e38, -3e38});
  trial.run(both_passes);
}

// Small values keep their digits: each is compared on its own.
TEST_F(CudaSigmoid, SmallValues) {
  for (const double x : {-10.0, -40.0, -80.0}) {
    SCOPED_TRACE(x);
    GpuTrial trial = trial_of(1, 1);
    trial.fill("x", {x}).run(both_passes);
  }
}

TEST_F(CudaSigmoid, Views) {
  const int64_t rows = 70, width = 6;
  GpuTrial trial;
  trial.data("fused", {rows, 19}).wide("dy", {rows, width});
  trial.wide_result("y", {rows, width}).tolerance("y", {2e-6, 2e-6}).result("dfused", {rows, 23});
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    sigmoid_forward(ctx, t["y"], t["fused"].columns(5, 5 + width));
    sigmoid_backward(ctx, t["dfused"].columns(3, 3 + width), t["dy"], t["y"]);
  });
}

// Only where Wide numbers are of the type of the data.
TEST_F(CudaSigmoid, InPlace) {
  GpuTrial trial = trial_of(40, 8);
  trial.fill("y", test::random_normal(320, 7)).fill("dx", test::random_normal(320, 8));
  trial.run(
      [](Context& ctx, GpuTrial::Tensors& t) {
        sigmoid_forward(ctx, t["y"], t["y"]);
        sigmoid_backward(ctx, t["dx"], t["dx"], t["y"]);
      },
      DType::f32);
}

}  // namespace
}  // namespace kata
