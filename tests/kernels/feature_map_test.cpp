#include "ops/feature_map.h"

#include "ops/linear_attention_support.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
using test::psd;
using test::psd_sum;
class CudaFeatureMap : public test::GpuTest {};

const std::vector<FeatureMap> maps = {{MapKind::identity, 5, 1},
                                      {MapKind::orthant, 7, 1},
                                      {MapKind::lorentz, 2, 1},
                                      {MapKind::lorentz, 65, 1},
                                      psd(1, 1),
                                      psd(7, 1),
                                      psd(64, 1),
                                      psd(8, 4),
                                      psd(128, 4),
                                      psd_sum(8, 8),
                                      psd_sum(64, 4),
                                      {MapKind::hermitian, 2, 1},
                                      {MapKind::hermitian, 10, 1},
                                      {MapKind::quaternionic, 4, 1},
                                      {MapKind::quaternionic, 24, 1},
                                      {MapKind::quaternionic, 64, 1}};

void both_passes(GpuTrial& trial, const FeatureMap& map) {
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    feature_map_forward(ctx, t["f"], t["x"], map);
    feature_map_backward(ctx, t["dx"], t["df"], t["x"], map);
  });
}

TEST_F(CudaFeatureMap, EveryMap) {
  for (const FeatureMap& map : maps)
    for (const int64_t rows : {1, 9}) {
      SCOPED_TRACE(fmt::format("map {} width {} groups {} rows {}", static_cast<int>(map.kind), map.width,
                               map.groups, rows));
      GpuTrial trial;
      trial.data("x", {rows, map.width}).data("df", {rows, map.features()});
      trial.result("f", {rows, map.features()}).result("dx", {rows, map.width});
      both_passes(trial, map);
    }
}

TEST_F(CudaFeatureMap, RowsInsideWiderOnes) {
  for (const FeatureMap& map : {psd(6, 2), FeatureMap{MapKind::quaternionic, 8, 1}}) {
    GpuTrial trial;
    trial.data("x", {5, 3 * map.width}).data("df", {5, map.features()});
    trial.result("f", {5, map.features()}).result("dx", {5, 3 * map.width});
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      const auto inner = [&](const char* name) { return t[name].columns(map.width, 2 * map.width); };
      feature_map_forward(ctx, t["f"], inner("x"), map);
      feature_map_backward(ctx, inner("dx"), t["df"], inner("x"), map);
    });
  }
}

TEST_F(CudaFeatureMap, NoRows) {
  GpuTrial trial;
  trial.data("x", {0, 8}).data("df", {0, 36}).result("f", {0, 36}).result("dx", {0, 8});
  both_passes(trial, psd(8, 1));
}

}  // namespace
}  // namespace kata
