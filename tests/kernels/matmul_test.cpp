#include "ops/matmul.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaMatmul : public test::GpuTest {};

struct Sizes {
  int64_t m, n, k;
};
const std::vector<Sizes> all_sizes = {{1, 1, 1},       {1, 64, 64},  {7, 3, 5},     {128, 48, 16},
                                      {130, 16, 1024}, {33, 72, 65}, {512, 19, 64}, {300, 96, 344}};

TEST_F(CudaMatmul, TheThreeProducts) {
  for (const auto& [m, n, k] : all_sizes) {
    SCOPED_TRACE(fmt::format("{} x {} from {}", m, n, k));
    GpuTrial trial;
    trial.data("x", {m, k}).data("w", {n, k}).data("dy", {m, n});
    trial.result("y", {m, n}).result("dx", {m, k}).wide_result("dw", {n, k});
    trial.fill("dw", test::random_normal(static_cast<size_t>(n * k), 77));
    trial.run([](Context& ctx, GpuTrial::Tensors& t) {
      matmul_forward(ctx, t["y"], t["x"], t["w"]);
      matmul_backward_input(ctx, t["dx"], t["dy"], t["w"], false);
      matmul_backward_weight(ctx, t["dw"], t["dy"], t["x"]);
    });
  }
}

TEST_F(CudaMatmul, AddsWhereItIsAsked) {
  for (const auto& [m, n, k] : all_sizes) {
    SCOPED_TRACE(fmt::format("{} x {} from {}", m, n, k));
    GpuTrial trial;
    trial.data("x", {m, k}).data("w", {n, k}).data("dy", {m, n}).data("residual", {m, n});
    trial.result("y", {m, n}).result("in place", {m, n}).result("dx", {m, k});
    trial.fill("in place", test::random_normal(static_cast<size_t>(m * n), 78));
    trial.fill("dx", test::random_normal(static_cast<size_t>(m * k), 79));
    trial.run([](Context& ctx, GpuTrial::Tensors& t) {
      matmul_forward(ctx, t["y"], t["x"], t["w"], t["residual"]);
      matmul_forward(ctx, t["in place"], t["x"], t["w"], t["in place"]);
      matmul_backward_input(ctx, t["dx"], t["dy"], t["w"], true);
    });
  }
}

// Column views into wider rows, at places that no 16-byte access can reach.
TEST_F(CudaMatmul, StridedViews) {
  for (const int64_t begin : {8, 3}) {
    SCOPED_TRACE(begin);
    const int64_t m = 40, n = 24, k = 32;
    GpuTrial trial;
    trial.data("x", {m, 80}).data("w", {n, k}).data("dy", {m, 64}).data("residual", {m, 56});
    trial.result("y", {m, 48}).result("dx", {m, 72}).wide_result("dw", {n, k});
    trial.fill("dw", std::vector<double>(static_cast<size_t>(n * k), 0.25));
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      const Tensor x = t["x"].columns(begin, begin + k), dy = t["dy"].columns(begin, begin + n);
      matmul_forward(ctx, t["y"].columns(begin, begin + n), x, t["w"],
                     t["residual"].columns(begin, begin + n));
      matmul_backward_input(ctx, t["dx"].columns(begin, begin + k), dy, t["w"], false);
      matmul_backward_weight(ctx, t["dw"], dy, x);
    });
  }
}

TEST_F(CudaMatmul, NoRows) {
  GpuTrial trial;
  trial.wide_result("dw", {4, 8}).fill("dw", std::vector<double>(32, 0.5)).data("w", {4, 8});
  trial.run([](Context& ctx, GpuTrial::Tensors& t) {
    const DType type = t["w"].dtype();
    const Tensor none_x(t["w"].data(), type, {0, 8}), none_y(t["w"].data(), type, {0, 4});
    matmul_forward(ctx, none_y, none_x, t["w"]);
    matmul_backward_input(ctx, none_x, none_y, t["w"], false);
    matmul_backward_weight(ctx, t["dw"], none_y, none_x);
  });
}

}  // namespace
}  // namespace kata
