#include "ops/unit_feature.h"

#include "ops/linear_attention_support.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
using test::psd;
using test::psd_sum;
class CudaUnitFeature : public test::GpuTest {};

constexpr double scale = 0.7;
// Lengths are fourth roots of sums of fourth powers, and gradients what is left of du across the row.
constexpr GpuTrial::Tolerance tolerance{5e-6, 4e-3};

// None whose row, or h of lorentz, is one number: its gradient is 0 in exact arithmetic.
const std::vector<FeatureMap> maps = {{MapKind::identity, 5, 1},
                                      {MapKind::identity, 130, 1},
                                      {MapKind::orthant, 7, 1},
                                      {MapKind::orthant, 64, 1},
                                      {MapKind::lorentz, 3, 1},
                                      {MapKind::lorentz, 7, 1},
                                      {MapKind::lorentz, 65, 1},
                                      psd(7, 1),
                                      psd(64, 1),
                                      psd(8, 2),
                                      psd(8, 4),
                                      psd(8, 8),
                                      psd(128, 4),
                                      psd_sum(8, 1),
                                      psd_sum(8, 2),
                                      psd_sum(8, 4),
                                      psd_sum(8, 8),
                                      psd_sum(64, 4),
                                      {MapKind::hermitian, 8, 1},
                                      {MapKind::hermitian, 2, 1},
                                      {MapKind::quaternionic, 8, 1},
                                      {MapKind::quaternionic, 64, 1}};

// Normal rows times a size; tau of lorentz stays of size one.
std::vector<double> rows_of(const FeatureMap& map, int64_t rows, double size) {
  std::vector<double> x = test::random_normal(static_cast<size_t>(rows * map.width), 5);
  for (size_t i = 0; i < x.size(); ++i)
    if (map.kind != MapKind::lorentz || static_cast<int64_t>(i) % map.width != map.width - 1) x[i] *= size;
  return x;
}

void both_passes(const FeatureMap& map, int64_t rows, const std::vector<double>& x) {
  GpuTrial trial(tolerance);
  const Shape shape{rows, map.width};
  trial.data("x", shape).fill("x", x).data("du", shape).result("u", shape).result("dx", shape);
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    unit_feature_forward(ctx, t["u"], t["x"], scale, map);
    unit_feature_backward(ctx, t["dx"], t["du"], t["x"], scale, map);
  });
}

// A block has four rows. At 1e-18 the features of all maps but the orthant's, which has a floor, count as
// zero; the square of 1e18, and the fourth power of 1e15, overflow on the way through a feature.
TEST_F(CudaUnitFeature, EveryMapAtEverySize) {
  for (const FeatureMap& map : maps)
    for (const double size : {1.0, 1e-18, 1e-3, 1e15, 1e18, 1e30}) {
      SCOPED_TRACE(fmt::format("{} rows times {}", ::testing::PrintToString(map), size));
      both_passes(map, 9, rows_of(map, 9, size));
    }
}

TEST_F(CudaUnitFeature, ManyRows) {
  for (const FeatureMap& map : {psd(16, 2), psd_sum(16, 2), FeatureMap{MapKind::lorentz, 16, 1}})
    for (const int64_t rows : {1, 4, 1001}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, ::testing::PrintToString(map)));
      both_passes(map, rows, rows_of(map, rows, 1));
    }
}

TEST_F(CudaUnitFeature, ZeroRowsAmongOthers) {
  for (const FeatureMap& map : maps) {
    SCOPED_TRACE(::testing::PrintToString(map));
    // A zero row of the orthant has gradients only where it is positive: nowhere.
    std::vector<double> x = rows_of(map, 6, 1);
    std::fill(x.begin() + map.width, x.begin() + 3 * map.width, 0);
    both_passes(map, 6, x);
  }
}

// Heads inside fused rows: x, u (with du) and dx have strides of their own.
TEST_F(CudaUnitFeature, HeadsInsideFusedRows) {
  for (const FeatureMap& map : maps) {
    SCOPED_TRACE(::testing::PrintToString(map));
    const int64_t rows = 11, heads = 3, row = heads * map.width;
    GpuTrial trial(tolerance);
    trial.data("x", {rows, row + 5}).data("du", {rows, row + 8}).result("u", {rows, row + 8});
    trial.result("dx", {rows, row + 3});
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      const auto part = [&](const char* name, int64_t from) {
        return t[name].columns(from, from + row).split_last(heads, map.width);
      };
      unit_feature_forward(ctx, part("u", 8), part("x", 5), scale, map);
      unit_feature_backward(ctx, part("dx", 1), part("du", 8), part("x", 5), scale, map);
    });
  }
}

}  // namespace
}  // namespace kata
