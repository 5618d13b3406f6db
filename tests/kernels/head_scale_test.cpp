#include "ops/head_scale.h"

#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaHeadScale : public test::GpuTest {};

// ds is Wide: a sum over the width, or over all rows too.
constexpr GpuTrial::Tolerance sums{1e-5, 1e-5};

struct Problem {
  int64_t rows, heads, width;
  bool per_token;

  Shape x() const { return {rows, heads, width}; }
  Shape s() const { return per_token ? Shape{rows, heads} : Shape{heads}; }
  std::string name() const {
    return fmt::format("{} x {} x {}{}", rows, heads, width, per_token ? " per token" : "");
  }
};

std::vector<double> numbers(const Shape& shape, uint64_t seed) {
  return test::random_normal(static_cast<size_t>(shape.numel()), seed);
}

GpuTrial trial_of(const Problem& p) {
  GpuTrial trial;
  trial.data("x", p.x()).data("dy", p.x()).wide("s", p.s());
  trial.result("y", p.x()).result("dx", p.x()).wide_result("ds", p.s()).tolerance("ds", sums);
  if (!p.per_token) trial.fill("ds", numbers(p.s(), 90));  // that of a parameter is added to
  return trial;
}

// A partial sum of ds is of 64 rows; a warp reads 32 columns at a time.
const std::vector<Problem> problems = [] {
  std::vector<Problem> all;
  for (const bool per_token : {false, true})
    for (const Problem& p :
         {Problem{1, 1, 1, false}, Problem{1, 3, 31, false}, Problem{63, 2, 32, false},
          Problem{64, 3, 33, false}, Problem{65, 1, 64, false}, Problem{500, 5, 16, false}})
      all.push_back({p.rows, p.heads, p.width, per_token});
  return all;
}();

TEST_F(CudaHeadScale, BothPasses) {
  for (const Problem& p : problems)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", p.name(), accumulate ? ", added" : ""));
      GpuTrial trial = trial_of(p);
      if (accumulate) trial.fill("y", numbers(p.x(), 91)).fill("dx", numbers(p.x(), 92));
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        head_scale_forward(ctx, t["y"], t["s"], t["x"], accumulate);
        head_scale_backward(ctx, t["dx"], t["ds"], t["dy"], t["s"], t["x"], accumulate);
      });
    }
}

// y and dy share a stride; x and dx have others.
TEST_F(CudaHeadScale, Views) {
  for (const Problem& p : problems)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", p.name(), accumulate ? ", added" : ""));
      const int64_t row = p.heads * p.width;
      GpuTrial trial = trial_of(p);
      const Shape y{p.rows, row + 3}, x{p.rows, row + 5}, dx{p.rows, row + 9};
      trial.data("x", x).data("dy", y).result("y", y).result("dx", dx);
      if (accumulate) trial.fill("y", numbers(y, 91)).fill("dx", numbers(dx, 92));
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const auto part = [&](const char* name, int64_t from) {
          return t[name].columns(from, from + row).split_last(p.heads, p.width);
        };
        head_scale_forward(ctx, part("y", 3), t["s"], part("x", 1), accumulate);
        head_scale_backward(ctx, part("dx", 4), t["ds"], part("dy", 2), t["s"], part("x", 1), accumulate);
      });
    }
}

TEST_F(CudaHeadScale, InPlace) {
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.name());
    GpuTrial trial = trial_of(p);
    trial.fill("y", numbers(p.x(), 91)).fill("dx", numbers(p.x(), 92));
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      head_scale_forward(ctx, t["y"], t["s"], t["y"], false);
      head_scale_backward(ctx, t["dx"], t["ds"], t["dx"], t["s"], t["x"], false);
    });
  }
}

}  // namespace
}  // namespace kata
