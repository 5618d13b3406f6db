#include "ops/qk_norm_rope.h"

#include "base/parallel.h"
#include "ops/documents_support.h"
#include "ops/oracle/qk_norm_rope.h"
#include "ops/rmsnorm.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

constexpr double eps = 1e-6;

struct Case {
  int64_t batch, time, q_heads, k_heads, width, groups, rotated;
  double scale = 1;
  int64_t pairs_per_frequency = 1;
  std::vector<int64_t> lengths = {};  // of the first row's documents; empty: no starts

  int64_t heads() const { return q_heads + k_heads; }
  int64_t tokens() const { return batch * time; }
  size_t count() const { return static_cast<size_t>(tokens() * heads() * width); }
  RopeSpec spec() const { return {width, groups, rotated, 10000, pairs_per_frequency}; }
  std::vector<int32_t> starts() const {
    return lengths.empty() ? std::vector<int32_t>() : test::starts_of_rows(batch, time, lengths);
  }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "B " << c.batch << " T " << c.time << " H " << c.q_heads << "+" << c.k_heads << " d " << c.width
       << "/" << c.groups << " rotated " << c.rotated << " documents " << c.lengths.size();
}

// One call's inputs and results. x and dx lie inside rows of x_row elements from column x_column on, y and dy
// inside rows of y_row.
template <class T>
struct Call {
  Case c;
  std::vector<T> x, dy, q_weight, k_weight;
  int64_t x_row = 0, x_column = 0, y_row = 0;
  bool in_place = false;  // dx is dy

  std::vector<T> y, dx, rstd, dq_weight, dk_weight;

  Call(const Case& of, std::vector<T> x_, std::vector<T> dy_, std::vector<T> q, std::vector<T> k)
      : c(of), x(std::move(x_)), dy(std::move(dy_)), q_weight(std::move(q)), k_weight(std::move(k)) {
    x_row = y_row = c.heads() * c.width;
  }
  Tensor view(std::vector<T>& data, int64_t row, int64_t column) const {
    return tensor(data, {c.tokens(), row})
        .columns(column, column + c.heads() * c.width)
        .split_last(c.heads(), c.width)
        .split_first(c.batch, c.time);
  }
  void run(T weight_gradient = 0) {
    y.assign(static_cast<size_t>(c.tokens() * y_row), 7);
    dx.assign(x.size(), 7);
    rstd.assign(static_cast<size_t>(c.tokens() * c.heads()), 0);
    dq_weight.assign(q_weight.size(), weight_gradient), dk_weight = dq_weight;
    std::vector<T> table(static_cast<size_t>(c.time * c.rotated));
    std::vector<int32_t> starts = c.starts();
    test::run_op([&](Context& ctx) {
      const Tensor turns = tensor(table, {c.time, c.rotated / 2, 2});
      rope_table(ctx, turns, 0, c.spec());
      QkNormRope by{c.q_heads, tensor(q_weight, {c.width}), tensor(k_weight, {c.width}), turns, c.spec()};
      if (!starts.empty()) by.starts = tensor(starts, {c.batch, c.time});
      const Tensor scales = tensor(rstd, {c.tokens() * c.heads()}), from = view(x, x_row, x_column);
      qk_norm_rope_forward(ctx, view(y, y_row, 0), scales, from, by, eps);
      if (in_place && !ctx.planning()) dx = dy;
      const Tensor to = view(dx, x_row, x_column);
      qk_norm_rope_backward(ctx, to, tensor(dq_weight, {c.width}), tensor(dk_weight, {c.width}),
                            in_place ? to : view(dy, y_row, 0), from, scales, by);
    });
  }
};

// rmsnorm and rope apart, on contiguous tensors.
template <class T>
Call<T> apart(Call<T> r) {
  const Case& c = r.c;
  r.y = r.x, r.dx = r.dy;
  r.rstd.assign(static_cast<size_t>(c.tokens() * c.heads()), 0);
  r.dq_weight.assign(r.q_weight.size(), 0), r.dk_weight = r.dq_weight;
  std::vector<T> table(static_cast<size_t>(c.time * c.rotated));
  std::vector<int32_t> starts = c.starts();
  test::run_op([&](Context& ctx) {
    const Tensor turns = tensor(table, {c.time, c.rotated / 2, 2});
    const Tensor documents = starts.empty() ? Tensor() : tensor(starts, {c.batch, c.time});
    rope_table(ctx, turns, 0, c.spec());
    if (!ctx.planning()) r.y.assign(r.x.size(), 0), r.dx = r.dy;
    const auto rows = [&](std::vector<T>& data, bool query) {
      const int64_t end = c.q_heads * c.width, all = c.heads() * c.width;
      return tensor(data, {c.tokens(), all})
          .columns(query ? 0 : end, query ? end : all)
          .split_last(query ? c.q_heads : c.k_heads, c.width);
    };
    for (const bool query : {true, false}) {
      if ((query ? c.q_heads : c.k_heads) == 0) continue;
      Arena::Scope scope(ctx.arena);
      const Tensor weight = tensor(query ? r.q_weight : r.k_weight, {c.width});
      const Tensor dweight = tensor(query ? r.dq_weight : r.dk_weight, {c.width});
      const Tensor x = rows(r.x, query), y = rows(r.y, query), dx = rows(r.dx, query);
      const Tensor rstd = ctx.arena.take("rstd", dtype_of<T>, {x.dim(0) * x.dim(1)});
      rmsnorm_forward(ctx, y, rstd, x, weight, eps);
      rope_forward(ctx, y.split_first(c.batch, c.time), turns, c.spec(), documents);
      rope_backward(ctx, dx.split_first(c.batch, c.time), turns, c.spec(), documents);
      rmsnorm_backward(ctx, dx, dweight, dx, x, rstd, weight, false);
    }
  });
  return r;
}

class QkNormRopeOp : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  std::vector<double> x = random_normal(c.count(), 1, c.scale), dy = random_normal(c.count(), 2);
  std::vector<double> q_weight = random_normal(static_cast<size_t>(c.width), 3);
  std::vector<double> k_weight = random_normal(static_cast<size_t>(c.width), 4);

  template <class T>
  Call<T> call() const {
    return {c, cast<T>(x), cast<T>(dy), cast<T>(q_weight), cast<T>(k_weight)};
  }
  template <class S>
  std::vector<S> exact(const std::vector<S>& in, const std::vector<S>& q, const std::vector<S>& k) const {
    const oracle::Rope rope{static_cast<size_t>(c.width),
                            static_cast<size_t>(c.groups),
                            static_cast<size_t>(c.rotated),
                            10000,
                            0,
                            static_cast<size_t>(c.pairs_per_frequency),
                            c.starts()};
    return oracle::qk_norm_rope<S>(in, q, k, static_cast<size_t>(c.time), static_cast<size_t>(c.heads()),
                                   static_cast<size_t>(c.q_heads), rope, eps);
  }
};

TEST_P(QkNormRopeOp, DoubleAgainstTheOracleAndItsComplexStep) {
  auto r = call<double>();
  r.run();
  EXPECT_TRUE(close(r.y, exact(x, q_weight, k_weight), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) {
    return test::weighted_sum(exact(in[0], in[1], in[2]), dy);
  };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x, q_weight, k_weight}, 0), 1e-12));
  EXPECT_TRUE(close(r.dq_weight, test::complex_step(f, {x, q_weight, k_weight}, 1), 1e-12));
  EXPECT_TRUE(close(r.dk_weight, test::complex_step(f, {x, q_weight, k_weight}, 2), 1e-12));
}

TEST_P(QkNormRopeOp, EqualsTheTwoOpsApart) {
  auto d = call<double>();
  d.run();
  const auto two = apart(call<double>());
  EXPECT_TRUE(close(d.y, two.y, 1e-15));
  EXPECT_TRUE(close(d.dx, two.dx, 1e-15));
  EXPECT_TRUE(close(d.dq_weight, two.dq_weight, 1e-14));
  EXPECT_TRUE(close(d.dk_weight, two.dk_weight, 1e-14));
  auto f = call<float>();
  f.run();
  const auto two_f = apart(call<float>());
  EXPECT_TRUE(close(f.y, two_f.y, 1e-7));
  EXPECT_TRUE(close(f.dx, two_f.dx, 1e-7));
}

TEST_P(QkNormRopeOp, FloatAgainstDouble) {
  auto f = call<float>();
  f.run();
  Call<double> d{c, cast<double>(f.x), cast<double>(f.dy), cast<double>(f.q_weight),
                 cast<double>(f.k_weight)};
  d.run();
  EXPECT_TRUE(close(f.y, d.y, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-5));
  EXPECT_TRUE(close(f.dq_weight, d.dq_weight, 1e-5));
  EXPECT_TRUE(close(f.dk_weight, d.dk_weight, 1e-5));
}

TEST_P(QkNormRopeOp, StridedViewsInPlaceTouchNothingElseAndAddToTheWeights) {
  auto plain = call<double>();
  plain.run();
  auto wide = call<double>();
  const int64_t inside = c.heads() * c.width, row = inside + 9;
  const auto spread = [&](const std::vector<double>& from) {
    std::vector<double> to(static_cast<size_t>(c.tokens() * row), 3);
    for (int64_t r = 0; r < c.tokens(); ++r)
      std::copy_n(from.begin() + r * inside, inside, to.begin() + r * row + 5);
    return to;
  };
  wide.x = spread(x), wide.dy = spread(dy);
  wide.x_row = wide.y_row = row, wide.x_column = 5, wide.in_place = true;
  wide.run(0.5);
  EXPECT_EQ(wide.dx, spread(plain.dx));
  for (int64_t r = 0; r < c.tokens(); ++r)
    for (int64_t j = 0; j < row; ++j)
      EXPECT_EQ(wide.y[static_cast<size_t>(r * row + j)],
                j < inside ? plain.y[static_cast<size_t>(r * inside + j)] : 7);
  for (size_t j = 0; j < q_weight.size(); ++j) {
    EXPECT_NEAR(wide.dq_weight[j], plain.dq_weight[j] + 0.5, 1e-12 * (1 + std::abs(plain.dq_weight[j])));
    EXPECT_NEAR(wide.dk_weight[j], plain.dk_weight[j] + 0.5, 1e-12 * (1 + std::abs(plain.dk_weight[j])));
  }
}

// Groups of psd_sum; elements that do not turn, as lorentz has; quaternions; documents; several units.
INSTANTIATE_TEST_SUITE_P(
    Shapes, QkNormRopeOp,
    ::testing::Values(Case{1, 1, 1, 1, 2, 1, 2}, Case{2, 5, 3, 1, 8, 1, 8}, Case{1, 7, 2, 2, 16, 4, 4},
                      Case{2, 3, 1, 2, 12, 2, 4, 1e-6}, Case{1, 4, 2, 1, 8, 1, 6, 1e6},
                      Case{1, 3, 2, 0, 6, 1, 0}, Case{1, 2, 0, 1, 64, 1, 64}, Case{1, 3, 1, 1, 256, 2, 126},
                      Case{2, 7, 2, 1, 16, 1, 16, 1, 2}, Case{2, 8, 2, 2, 8, 1, 8, 1, 1, {1, 3, 1, 1, 2}},
                      Case{2, 9, 3, 1, 8, 2, 4, 1, 2, {4, 5}}, Case{3, 100, 1, 1, 4, 1, 4}));

TEST(QkNormRopeOp, CentralDifference) {
  const Case c{1, 3, 2, 1, 8, 2, 4};
  const auto x = random_normal(72, 1), dy = random_normal(72, 2), w = random_normal(8, 3);
  const auto call = [&](const std::vector<double>& at) {
    Call<double> r{c, at, dy, w, w};
    r.run();
    return r;
  };
  const auto direction = random_normal(72, 4);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(call(in[0]).y, dy);
  };
  EXPECT_NEAR(test::central_difference(f, {x}, 0, direction, 1e-4), test::weighted_sum(call(x).dx, direction),
              1e-6);
}

TEST(QkNormRopeOp, OutputMayBeTheInputWithoutABackwardPass) {
  const Case c{1, 4, 2, 1, 16, 1, 16};
  Call<float> r{c, random_normal<float>(c.count(), 1), random_normal<float>(c.count(), 2),
                random_normal<float>(16, 3), random_normal<float>(16, 4)};
  r.run();
  std::vector<float> table(4 * 16);
  Arena arena(0);
  Context ctx{arena};
  const Tensor turns = tensor(table, {4, 8, 2}), x = tensor(r.x, {1, 4, 3, 16});
  rope_table(ctx, turns, 0, c.spec());
  qk_norm_rope_forward(ctx, x, tensor(r.rstd, {12}), x,
                       {2, tensor(r.q_weight, {16}), tensor(r.k_weight, {16}), turns, c.spec()}, eps);
  EXPECT_EQ(r.x, r.y);
}

TEST(QkNormRopeOp, ZeroRowsStayZeroAndTheirGradientsFinite) {
  const Case c{1, 2, 1, 1, 8, 1, 8};
  Call<float> r{c, std::vector<float>(32), random_normal<float>(32, 1), std::vector<float>(8, 1),
                std::vector<float>(8, 1)};
  r.run();
  for (const float y : r.y) EXPECT_EQ(y, 0);
  for (const float d : r.dx) EXPECT_TRUE(std::isfinite(d));
  for (const float d : r.dq_weight) EXPECT_EQ(d, 0);
}

TEST(QkNormRopeOp, WhatItDoesNotTakeIsRefused) {
  EXPECT_FALSE(qk_norm_rope_takes({258, 1, 258}));
  EXPECT_FALSE(qk_norm_rope_takes({7, 1, 6}));
  EXPECT_FALSE(qk_norm_rope_takes({6, 2, 2}));
  EXPECT_TRUE(qk_norm_rope_takes({256, 2, 128}));
  std::vector<double> x(2 * 2 * 4), table(2 * 4), weight(4), rstd(4);
  Arena arena(0);
  Context ctx{arena};
  const auto forward = [&](const RopeSpec& spec, int64_t q_heads, std::vector<int32_t> starts) {
    QkNormRope by{q_heads, tensor(weight, {4}), tensor(weight, {4}), tensor(table, {2, 2, 2}), spec};
    if (!starts.empty()) by.starts = tensor(starts, {1, 2});
    const Tensor rows = tensor(x, {1, 2, 2, 4});
    qk_norm_rope_forward(ctx, rows, tensor(rstd, {4}), rows, by, eps);
  };
  EXPECT_NO_THROW(forward({4, 1, 4}, 1, {0, 0}));
  EXPECT_THROW(forward({4, 1, 4}, 3, {}), std::logic_error);
  EXPECT_THROW(forward({8, 2, 4}, 1, {}), std::logic_error);
  EXPECT_THROW(forward({4, 1, 4}, 1, {-1, -1}), std::logic_error);  // position 2 of a table of 2
  EXPECT_THROW(forward({4, 1, 4}, 1, {0, 2}), std::logic_error);    // starts after its own token
}

TEST(QkNormRopeOp, ThreadCountChangesNoBit) {
  const Case c{2, 400, 2, 1, 32, 1, 32};
  Call<float> one{c, random_normal<float>(c.count(), 1), random_normal<float>(c.count(), 2),
                  random_normal<float>(32, 3), random_normal<float>(32, 4)};
  Call<float> two = one;
  set_thread_count(1);
  one.run();
  set_thread_count(2);
  two.run();
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.dq_weight, two.dq_weight);
  EXPECT_EQ(one.dk_weight, two.dk_weight);
}

}  // namespace
}  // namespace kata
