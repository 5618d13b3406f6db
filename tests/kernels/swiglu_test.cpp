#include "ops/swiglu.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaSwiGlu : public test::GpuTest {};

// A width of 12 is packs in fp32 alone.
TEST_F(CudaSwiGlu, OddShapes) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 8}, {3, 5}, {7, 12}, {100, 33}, {65, 64}, {20, 2816}, {513, 24}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, width));
    GpuTrial trial;
    trial.data("x", {rows, 2 * width}, 2).data("dy", {rows, width});
    trial.result("y", {rows, width}).result("dx", {rows, 2 * width});
    trial.run([](Context& ctx, GpuTrial::Tensors& t) {
      swiglu_forward(ctx, t["y"], t["x"]);
      swiglu_backward(ctx, t["dx"], t["dy"], t["x"]);
    });
  }
}

TEST_F(CudaSwiGlu, GradientInPlace) {
  for (const int64_t width : {5, 64}) {
    GpuTrial trial;
    trial.result("x", {9, 2 * width}).data("dy", {9, width});
    trial.fill("x", test::random_normal(static_cast<size_t>(9 * 2 * width), 5));
    trial.run([](Context& ctx, GpuTrial::Tensors& t) { swiglu_backward(ctx, t["x"], t["dy"], t["x"]); });
  }
}

// exp(-gate) overflows, or is lost beside 1.
TEST_F(CudaSwiGlu, GatesFarOut) {
  for (const double scale : {100.0, 1e4, 1e-6}) {
    SCOPED_TRACE(scale);
    GpuTrial trial;
    trial.data("x", {10, 64}, scale).data("dy", {10, 32}).result("y", {10, 32}).result("dx", {10, 64});
    trial.run([](Context& ctx, GpuTrial::Tensors& t) {
      swiglu_forward(ctx, t["y"], t["x"]);
      swiglu_backward(ctx, t["dx"], t["dy"], t["x"]);
    });
  }
}

}  // namespace
}  // namespace kata
