#include "ops/rope.h"

#include "ops/documents_support.h"
#include "support/gpu_trial.h"

namespace kata {
namespace {

using test::GpuTrial;
class CudaRope : public test::GpuTest {};

// An element of the table is one rounding of a number computed in double.
constexpr GpuTrial::Tolerance one_rounding{1e-7, 1e-7};

struct Problem {
  RopeSpec spec;
  int64_t batch, time, heads;

  Shape table() const { return {time, spec.pairs(), 2}; }
  std::string name() const {
    return fmt::format("{} x {} x {} heads of {} in {} groups, {} turn, {} pairs a frequency", batch, time,
                       heads, spec.width, spec.groups, spec.rotated, spec.pairs_per_frequency);
  }
};

// Whole heads; several groups; packs of which the last turns in part; widths without packs; quaternions.
const std::vector<Problem> problems = {{{64, 1, 64}, 2, 33, 3},        {{64, 4, 16}, 2, 33, 3},
                                       {{32, 1, 20}, 2, 9, 2},         {{32, 2, 10}, 1, 9, 2},
                                       {{16, 1, 2}, 3, 1, 1},          {{7, 1, 6}, 2, 5, 3},
                                       {{12, 2, 6}, 2, 5, 3},          {{8, 4, 2}, 1, 5, 1},
                                       {{5, 1, 0}, 2, 3, 1},           {{64, 1, 64, 10000, 2}, 2, 17, 2},
                                       {{12, 1, 12, 500, 2}, 2, 17, 2}};

size_t count(const Problem& p) {
  return static_cast<size_t>(p.batch * p.time * p.heads * p.spec.width);
}

GpuTrial trial_of(const Problem& p) {
  GpuTrial trial;
  const Shape x{p.batch, p.time, p.heads, p.spec.width};
  trial.wide_result("table", p.table()).tolerance("table", one_rounding);
  trial.result("x", x).fill("x", test::random_normal(count(p), 1));
  trial.result("dx", x).fill("dx", test::random_normal(count(p), 2));
  return trial;
}

TEST_F(CudaRope, BothPasses) {
  for (const Problem& p : problems) {
    SCOPED_TRACE(p.name());
    trial_of(p).run([&](Context& ctx, GpuTrial::Tensors& t) {
      rope_table(ctx, t["table"], 5, p.spec);
      rope_forward(ctx, t["x"], t["table"], p.spec);
      rope_backward(ctx, t["dx"], t["table"], p.spec);
    });
  }
}

// A document of one token, and one that began before the call in the last row.
TEST_F(CudaRope, Documents) {
  for (const Problem& spec : problems) {
    Problem p = spec;
    p.batch = 3, p.time = 20;
    SCOPED_TRACE(p.name());
    std::vector<int32_t> starts = test::starts_of_rows(p.batch, p.time, {1, 7, 12});
    for (size_t i = 40; i < 60 && starts[i] == 0; ++i) starts[i] = -9;
    GpuTrial trial = trial_of(p);
    trial.wide_result("table", {40, p.spec.pairs(), 2}).ids("starts", {p.batch, p.time}, starts);
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      rope_table(ctx, t["table"], 0, p.spec);
      rope_forward(ctx, t["x"], t["table"], p.spec, t["starts"]);
      rope_backward(ctx, t["dx"], t["table"], p.spec, t["starts"]);
    });
  }
}

// Heads inside a fused projection, from columns on that allow packs and from others that do not.
TEST_F(CudaRope, HeadsInsideFusedRows) {
  for (const Problem& p : problems)
    for (const int64_t column : {0, 2, 3, 8, 16}) {
      SCOPED_TRACE(fmt::format("{}, from column {}", p.name(), column));
      const int64_t row = p.heads * p.spec.width + 32;
      const auto n = static_cast<size_t>(p.batch * p.time * row);
      GpuTrial trial;
      trial.wide_result("table", p.table()).tolerance("table", one_rounding);
      trial.result("x", {p.batch, p.time, row}).fill("x", test::random_normal(n, 3));
      trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
        const Tensor x =
            t["x"].columns(column, column + p.heads * p.spec.width).split_last(p.heads, p.spec.width);
        rope_table(ctx, t["table"], 0, p.spec);
        rope_forward(ctx, x, t["table"], p.spec);
      });
    }
}

// In fp32 such angles would have hardly a digit left. The last position is no int32, and there an ulp of the
// frequency, by which two pow() in double may differ, turns by 1e-6.
TEST_F(CudaRope, FarPositions) {
  for (const int64_t start : {int64_t{1'000'003}, int64_t{100'000'000}, int64_t{5'000'000'000}}) {
    SCOPED_TRACE(start);
    const Problem p{{64, 1, 64}, 1, 40, 1};
    GpuTrial trial = trial_of(p);
    if (start > INT32_MAX)
      for (const char* name : {"table", "x", "dx"})
        trial.tolerance(name, {1e-5, name[0] == 't' ? 1e-5 : 3e-3});
    trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
      rope_table(ctx, t["table"], start, p.spec);
      rope_forward(ctx, t["x"], t["table"], p.spec);
      rope_backward(ctx, t["dx"], t["table"], p.spec);
    });
  }
}

TEST_F(CudaRope, TableOfPositions) {
  const std::vector<int64_t> places = {0, 1'000'003, 7, 7, 123'456'789, 1};
  const auto rows = static_cast<int64_t>(places.size());
  const RopeSpec spec{24, 2, 10};
  GpuTrial trial(one_rounding);
  trial.wide_result("table", {rows, spec.pairs(), 2});
  trial.run([&](Context& ctx, GpuTrial::Tensors& t) {
    const Arena::Scope scope(ctx.arena);
    const Tensor positions = ctx.arena.take("positions", DType::i64, {rows});
    if (!ctx.planning()) {
      if (ctx.device == Device::cuda) {
        ctx.gpu->upload(positions.data(), places.data(), positions.bytes());
        ctx.gpu->synchronise();
      } else {
        std::memcpy(positions.data(), places.data(), positions.bytes());
      }
    }
    rope_table(ctx, t["table"], positions, spec);
  });
}

}  // namespace
}  // namespace kata
