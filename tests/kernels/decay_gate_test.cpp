#include "ops/decay_gate.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaDecayGate : public test::GpuTest {};

// Nothing but dx is rounded to 16 bits. Gradients of parameters are sums over all rows, of both signs, and
// with one head there is one number that may come out small.
constexpr GpuTrial::Tolerance wide_values{2e-6, 2e-6}, sums{3e-5, 3e-5};

GpuTrial trial_of(int64_t rows, int64_t heads, bool with_dt) {
  GpuTrial trial;
  trial.data("x", {rows, heads}, 2).wide("a_log", {heads}).wide("dt_bias", {heads});
  trial.wide("dlog", {rows, heads}).wide_result("log", {rows, heads}).result("dx", {rows, heads});
  trial.wide_result("da_log", {heads}).wide_result("ddt_bias", {heads});
  trial.tolerance("log", wide_values).tolerance("da_log", sums).tolerance("ddt_bias", sums);
  trial.fill("da_log", test::random_normal(static_cast<size_t>(heads), 90));
  trial.fill("ddt_bias", test::random_normal(static_cast<size_t>(heads), 91));
  if (with_dt) {
    trial.wide("ddt", {rows, heads});
    trial.wide_result("dt", {rows, heads}).tolerance("dt", wide_values);
  }
  return trial;
}

void both_passes(Context& ctx, GpuTrial::Tensors& t, bool with_dt) {
  const Tensor dt = with_dt ? t["dt"] : Tensor(), ddt = with_dt ? t["ddt"] : Tensor();
  decay_gate_forward(ctx, t["log"], dt, t["x"], t["a_log"], t["dt_bias"]);
  decay_gate_backward(ctx, t["dx"], t["da_log"], t["ddt_bias"], t["dlog"], ddt, t["x"], t["a_log"],
                      t["dt_bias"]);
}

// A partial sum is of 128 rows.
TEST_F(CudaDecayGate, OddShapes) {
  for (const int64_t rows : {1, 7, 127, 128, 129, 1500})
    for (const int64_t heads : {1, 3, 16})
      for (const bool with_dt : {false, true}) {
        SCOPED_TRACE(fmt::format("{} x {}{}", rows, heads, with_dt ? " with dt" : ""));
        trial_of(rows, heads, with_dt).run([&](Context& ctx, GpuTrial::Tensors& t) {
          both_passes(ctx, t, with_dt);
        });
      }
}

// softplus is z on the right; on the left it is exp(z), which keeps its digits where the rows hold nothing
// larger (dx is 1e-26 there).
TEST_F(CudaDecayGate, FarOut) {
  for (const auto& [middle, spread] :
       std::vector<std::pair<double, double>>{{0, 100}, {0, 1e4}, {60, 5}, {-60, 2}, {-20, 1}}) {
    SCOPED_TRACE(fmt::format("z around {}, spread {}", middle, spread));
    std::vector<double> x = test::random_normal(300, 5, spread);
    for (double& z : x) z += middle;
    GpuTrial trial = trial_of(100, 3, false);
    trial.fill("x", x).fill("dt_bias", {0, 0.5, -0.5});
    trial.run([](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, false); });
  }
}

TEST_F(CudaDecayGate, Views) {
  const int64_t rows = 150, heads = 5;
  GpuTrial trial = trial_of(rows, heads, true);
  trial.data("x", {rows, 17}).result("dx", {rows, 23});
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    GpuTrial::Tensors part = t;
    part["x"] = t["x"].columns(7, 7 + heads);
    part["dx"] = t["dx"].columns(2, 2 + heads);
    both_passes(ctx, part, true);
  });
}

// Only where Wide numbers are of the type of the data.
TEST_F(CudaDecayGate, ForwardInPlace) {
  for (const bool over_dt : {false, true}) {
    GpuTrial trial;
    const std::vector<double> x = test::random_normal(400, 5);
    trial.wide("a_log", {8}).wide("dt_bias", {8}).result("one", {50, 8}).result("other", {50, 8});
    trial.fill("one", x);
    trial.run(
        [&](Context& ctx, GpuTrial::Tensors& t) {
          const Tensor &log = over_dt ? t["other"] : t["one"], &dt = over_dt ? t["one"] : t["other"];
          decay_gate_forward(ctx, log, dt, t["one"], t["a_log"], t["dt_bias"]);
        },
        DType::f32);
  }
}

TEST_F(CudaDecayGate, GradientInPlace) {
  for (const bool over_ddt : {false, true}) {
    GpuTrial trial = trial_of(200, 8, true);
    trial.fill("dx", test::random_normal(1600, 7));
    trial.run(
        [&](Context& ctx, GpuTrial::Tensors& t) {
          decay_gate_forward(ctx, t["log"], t["dt"], t["x"], t["a_log"], t["dt_bias"]);
          decay_gate_backward(ctx, t["dx"], t["da_log"], t["ddt_bias"], over_ddt ? t["dlog"] : t["dx"],
                              over_ddt ? t["dx"] : t["ddt"], t["x"], t["a_log"], t["dt_bias"]);
        },
        DType::f32);
  }
}

}  // namespace
}  // namespace kata
