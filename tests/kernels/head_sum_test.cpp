#include "ops/head_sum.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaHeadSum : public test::GpuTest {};

// A width of 12 is packs in fp32 alone.
TEST_F(CudaHeadSum, OddShapes) {
  for (const int64_t rows : {1, 3, 300})
    for (const int64_t heads : {1, 2, 7, 32})
      for (const int64_t width : {1, 5, 8, 12, 64}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}", rows, heads, width));
        GpuTrial trial;
        trial.data("x", {rows, heads, width}).result("y", {rows, width});
        trial.run([](Context& ctx, GpuTrial::Tensors& t) { head_sum(ctx, t["y"], t["x"]); });
      }
}

// From columns on that allow packs and from others that do not.
TEST_F(CudaHeadSum, WritesItsColumnsOnly) {
  for (const int64_t width : {5, 64})
    for (const int64_t column : {0, 3, 8}) {
      SCOPED_TRACE(fmt::format("width {} from column {}", width, column));
      GpuTrial trial;
      trial.data("x", {33, 4, width}).result("y", {33, width + 16});
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        head_sum(ctx, t["y"].columns(column, column + width), t["x"]);
      });
    }
}

}  // namespace
}  // namespace kata
