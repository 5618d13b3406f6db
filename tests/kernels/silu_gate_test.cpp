#include "ops/silu_gate.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaSiluGate : public test::GpuTest {};

GpuTrial trial_of(int64_t rows, int64_t width, double scale = 2) {
  GpuTrial trial;
  trial.data("x", {rows, width}).data("g", {rows, width}, scale).data("dy", {rows, width});
  trial.result("y", {rows, width}).result("dx", {rows, width}).result("dg", {rows, width});
  return trial;
}

void both_passes(Context& ctx, GpuTrial::Tensors& t) {
  silu_gate_forward(ctx, t["y"], t["x"], t["g"]);
  silu_gate_backward(ctx, t["dx"], t["dg"], t["dy"], t["x"], t["g"]);
}

// A width of 12 is packs in fp32 alone.
TEST_F(CudaSiluGate, OddShapes) {
  for (const auto& [rows, width] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 8}, {3, 5}, {7, 12}, {100, 33}, {65, 64}, {20, 2048}, {513, 24}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, width));
    trial_of(rows, width).run(both_passes);
  }
}

TEST_F(CudaSiluGate, GatesFarOut) {
  for (const double scale : {100.0, 1e4, 1e-6}) {
    SCOPED_TRACE(scale);
    trial_of(10, 32, scale).run(both_passes);
  }
}

// x and g are parts of one projection, and so are their gradients, in rows of another length; y and dy have
// a stride too. The second place of g and the odd widths allow no packs.
TEST_F(CudaSiluGate, Views) {
  for (const int64_t width : {5, 16, 64})
    for (const int64_t g_at : {width, width + 3}) {
      SCOPED_TRACE(fmt::format("width {}, g from {}", width, g_at));
      const int64_t rows = 21;
      GpuTrial trial;
      trial.data("fused", {rows, 2 * width + 16}).data("dy", {rows, width + 8});
      trial.result("y", {rows, width + 8}).result("dfused", {rows, 2 * width + 24});
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const auto x = [&](const char* name) { return t[name].columns(0, width); };
        const auto g = [&](const char* name) { return t[name].columns(g_at, g_at + width); };
        const auto y = [&](const char* name) { return t[name].columns(8, 8 + width); };
        silu_gate_forward(ctx, y("y"), x("fused"), g("fused"));
        silu_gate_backward(ctx, x("dfused"), g("dfused"), y("dy"), x("fused"), g("fused"));
      });
    }
}

TEST_F(CudaSiluGate, InPlace) {
  for (const int64_t width : {5, 64}) {
    const auto n = static_cast<size_t>(9 * width);
    GpuTrial trial = trial_of(9, width);
    trial.fill("y", test::random_normal(n, 7)).fill("dx", test::random_normal(n, 8));
    trial.run([](Context& ctx, GpuTrial::Tensors& t) {
      silu_gate_forward(ctx, t["y"], t["y"], t["g"]);
      silu_gate_backward(ctx, t["dx"], t["dg"], t["dx"], t["x"], t["g"]);
    });
  }
}

}  // namespace
}  // namespace kata
