#include "ops/qk_norm_rope.h"

#include "ops/documents_support.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaQkNormRope : public test::GpuTest {};

constexpr double eps = 1e-6;
// An element of the table is one rounding of a number computed in double.
constexpr GpuTrial::Tolerance one_rounding{1e-7, 1e-7};

struct Problem {
  RopeSpec spec;
  int64_t batch, time, q_heads, k_heads;

  int64_t heads() const { return q_heads + k_heads; }
  int64_t tokens() const { return batch * time; }
  size_t count() const { return static_cast<size_t>(tokens() * heads() * spec.width); }
  std::string name() const {
    return fmt::format("{} x {} x ({} + {}) heads of {} in {} groups, {} turn, {} pairs a frequency", batch,
                       time, q_heads, k_heads, spec.width, spec.groups, spec.rotated,
                       spec.pairs_per_frequency);
  }
};

// Whole heads of every number of lanes; several groups; packs of which the last turns in part or not at all;
// widths without packs; nothing that turns; quaternions; one kind of heads alone; several units a token.
const std::vector<Problem> problems = {{{64, 1, 64}, 2, 33, 4, 4},
                                       {{128, 1, 128}, 1, 70, 2, 1},
                                       {{64, 4, 16}, 2, 33, 5, 3},
                                       {{32, 1, 20}, 2, 9, 2, 1},
                                       {{32, 2, 10}, 1, 9, 9, 2},
                                       {{16, 1, 2}, 3, 1, 1, 1},
                                       {{256, 1, 256}, 1, 5, 3, 1},
                                       {{250, 5, 48}, 1, 5, 3, 2},
                                       {{6, 1, 4}, 2, 5, 3, 1},
                                       {{12, 2, 6}, 2, 5, 3, 3},
                                       {{8, 4, 2}, 1, 5, 1, 1},
                                       {{10, 1, 0}, 2, 3, 1, 2},
                                       {{40, 1, 38}, 1, 12, 2, 2},
                                       {{64, 1, 64, 10000, 2}, 2, 17, 16, 4},
                                       {{24, 1, 24, 500, 2}, 2, 17, 2, 7},
                                       {{64, 1, 64}, 1, 200, 0, 3},
                                       {{64, 1, 64}, 1, 200, 3, 0},
                                       {{200, 1, 96}, 1, 7, 2, 2}};

GpuTrial trial_of(const Problem& p, int64_t positions, double scale = 1) {
  GpuTrial trial;
  const Shape x{p.batch, p.time, p.heads(), p.spec.width};
  trial.data("x", x, scale).data("dy", x).result("y", x).result("dx", x);
  trial.wide("q_weight", {p.spec.width}).wide("k_weight", {p.spec.width});
  trial.wide_result("table", {positions, p.spec.pairs(), 2}).tolerance("table", one_rounding);
  trial.wide_result("rstd", {p.tokens() * p.heads()});
  const auto width = static_cast<size_t>(p.spec.width);
  trial.wide_result("dq_weight", {p.spec.width}).fill("dq_weight", test::random_normal(width, 90));
  trial.wide_result("dk_weight", {p.spec.width}).fill("dk_weight", test::random_normal(width, 91));
  return trial;
}

QkNormRope by_of(const Problem& p, GpuTrial::Tensors& t) {
  const Tensor starts = t.count("starts") > 0 ? t["starts"] : Tensor();
  return {p.q_heads, t["q_weight"], t["k_weight"], t["table"], p.spec, starts};
}

void both_passes(Context& ctx, GpuTrial::Tensors& t, const Problem& p) {
  rope_table(ctx, t["table"], 0, p.spec);
  qk_norm_rope_forward(ctx, t["y"], t["rstd"], t["x"], by_of(p, t), eps);
  qk_norm_rope_backward(ctx, t["dx"], t["dq_weight"], t["dk_weight"], t["dy"], t["x"], t["rstd"],
                        by_of(p, t));
}

TEST_F(CudaQkNormRope, BothPasses) {
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.name());
    trial_of(p, p.time).run([&](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, p); });
  }
}

TEST_F(CudaQkNormRope, SmallAndLargeRows) {
  for (const double scale : {1e-12, 1e-3, 1e12}) {
    SCOPED_TRACE(scale);
    const Problem p{{64, 1, 64}, 1, 9, 2, 1};
    trial_of(p, p.time, scale).run([&](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, p); });
  }
}

TEST_F(CudaQkNormRope, ZeroRows) {
  const Problem p{{64, 1, 64}, 1, 3, 2, 2};
  GpuTrial trial = trial_of(p, p.time);
  trial.fill("x", std::vector<double>(p.count()));
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, p); });
}

// A document of one token, and one that began before the call in the last row.
TEST_F(CudaQkNormRope, Documents) {
  for (const Problem& plain : problems) {
    Problem p = plain;
    p.batch = 3, p.time = 20;
    SCOPED_TRACE(p.name());
    std::vector<int32_t> starts = test::starts_of_rows(p.batch, p.time, {1, 7, 12});
    for (size_t i = 40; i < 60 && starts[i] == 0; ++i) starts[i] = -9;
    GpuTrial trial = trial_of(p, 40);
    trial.ids("starts", {p.batch, p.time}, starts);
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, p); });
  }
}

// As a mixer calls it: queries and keys at the beginning of a row that holds values too, the gradient in
// place. Columns and widths of the row that allow packs, and others that do not.
TEST_F(CudaQkNormRope, InPlaceInsideFusedRows) {
  for (const Problem& p : problems)
    for (const int64_t column : {0, 3, 8}) {
      SCOPED_TRACE(fmt::format("{}, from column {}", p.name(), column));
      const int64_t inside = p.heads() * p.spec.width, row = inside + (column == 3 ? 35 : 32);
      GpuTrial trial = trial_of(p, p.time);
      trial.data("fused", {p.batch, p.time, row}).result("turned", {p.batch, p.time, row});
      trial.result("dfused", {p.batch, p.time, row});
      trial.fill("dfused", test::random_normal(static_cast<size_t>(p.tokens() * row), 92));
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const auto heads = [&](const Tensor& x) {
          return x.columns(column, column + inside).split_last(p.heads(), p.spec.width);
        };
        rope_table(ctx, t["table"], 0, p.spec);
        qk_norm_rope_forward(ctx, heads(t["turned"]), t["rstd"], heads(t["fused"]), by_of(p, t), eps);
        qk_norm_rope_backward(ctx, heads(t["dfused"]), t["dq_weight"], t["dk_weight"], heads(t["dfused"]),
                              heads(t["fused"]), t["rstd"], by_of(p, t));
      });
    }
}

// Every block has several turns of its loop, the last block and the last turn not full.
TEST_F(CudaQkNormRope, ManyTokens) {
  const Problem p{{16, 1, 16}, 1, 20011, 12, 6};
  trial_of(p, p.time).run([&](Context& ctx, GpuTrial::Tensors& t) { both_passes(ctx, t, p); });
}

}  // namespace
}  // namespace kata
