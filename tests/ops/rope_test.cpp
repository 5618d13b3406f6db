#include "ops/rope.h"

#include "base/parallel.h"
#include "ops/documents_support.h"
#include "ops/oracle/rope.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

struct Case {
  int64_t batch, time, heads, width, groups, rotated, start;
  double scale;
  int64_t pairs_per_frequency = 1;
  std::vector<int64_t> lengths = {};  // of the first row's documents; empty: no starts

  std::vector<int32_t> starts() const {
    return lengths.empty() ? std::vector<int32_t>() : test::starts_of_rows(batch, time, lengths);
  }
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "B " << c.batch << " T " << c.time << " H " << c.heads << " d " << c.width << "/" << c.groups
       << " rotated " << c.rotated << " from " << c.start << " of " << c.lengths.size();
}

RopeSpec spec_of(const Case& c) {
  return {c.width, c.groups, c.rotated, 10000, c.pairs_per_frequency};
}

template <class T>
struct Result {
  std::vector<T> y, dx;
};

template <class T>
Result<T> run(const std::vector<T>& x, const std::vector<T>& dy, const Case& c, std::vector<int32_t> starts) {
  Result<T> r{x, dy};
  const int64_t reach = starts.empty() ? 0 : std::max(-*std::min_element(starts.begin(), starts.end()), 0);
  std::vector<T> table(static_cast<size_t>((c.time + reach) * c.rotated));
  const RopeSpec spec = spec_of(c);
  const Shape shape{c.batch, c.time, c.heads, c.width};
  Arena arena(0);
  Context ctx{arena};
  const Tensor turns = tensor(table, {c.time + reach, spec.pairs(), 2});
  const Tensor documents = starts.empty() ? Tensor() : tensor(starts, {c.batch, c.time});
  rope_table(ctx, turns, c.start, spec);
  rope_forward(ctx, tensor(r.y, shape), turns, spec, documents);
  rope_backward(ctx, tensor(r.dx, shape), turns, spec, documents);
  return r;
}
template <class T>
Result<T> run(const std::vector<T>& x, const std::vector<T>& dy, const Case& c) {
  return run<T>(x, dy, c, c.starts());
}

class Rope : public ::testing::TestWithParam<Case> {
 protected:
  Case c = GetParam();
  size_t count = static_cast<size_t>(c.batch * c.time * c.heads * c.width);
  std::vector<double> x = random_normal(count, 1, c.scale), dy = random_normal(count, 2);

  template <class S>
  std::vector<S> exact(const std::vector<S>& in) const {
    const oracle::Rope rope{static_cast<size_t>(c.width),
                            static_cast<size_t>(c.groups),
                            static_cast<size_t>(c.rotated),
                            10000,
                            c.start,
                            static_cast<size_t>(c.pairs_per_frequency),
                            c.starts()};
    return oracle::rope<S>(in, static_cast<size_t>(c.time), static_cast<size_t>(c.heads), rope);
  }
};

TEST_P(Rope, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto r = run<double>(x, dy, c);
  EXPECT_TRUE(close(r.y, exact(x), 1e-14));
  const auto f = [&](const test::ComplexInputs& in) { return test::weighted_sum(exact(in[0]), dy); };
  EXPECT_TRUE(close(r.dx, test::complex_step(f, {x}, 0), 1e-13));
}

TEST_P(Rope, OneDocumentARowIsNoStartsToTheBit) {
  Case plain = c;
  plain.lengths.clear();
  const auto a = run<double>(x, dy, plain);
  plain.lengths = {c.time};
  const auto b = run<double>(x, dy, plain);
  EXPECT_EQ(a.y, b.y);
  EXPECT_EQ(a.dx, b.dx);
}

TEST_P(Rope, FloatAgainstDouble) {
  const auto xf = cast<float>(x), gf = cast<float>(dy);
  const auto f = run<float>(xf, gf, c);
  const auto d = run<double>(cast<double>(xf), cast<double>(gf), c);
  EXPECT_TRUE(close(f.y, d.y, 2e-7));
  EXPECT_TRUE(close(f.dx, d.dx, 2e-7));
}

// psd_sum: groups with the same frequencies; lorentz: the largest even number below the width; far positions.
INSTANTIATE_TEST_SUITE_P(Shapes, Rope,
                         ::testing::Values(Case{1, 1, 1, 2, 1, 2, 0, 1}, Case{1, 1, 1, 2, 1, 2, 5, 1},
                                           Case{2, 5, 3, 8, 1, 8, 0, 1}, Case{1, 7, 2, 16, 4, 4, 3, 1e6},
                                           Case{2, 3, 1, 12, 2, 6, 0, 1e-6}, Case{1, 4, 2, 8, 1, 6, 9, 1},
                                           Case{1, 4, 2, 7, 1, 6, 9, 1}, Case{1, 3, 1, 1, 1, 0, 0, 1},
                                           Case{1, 2, 1, 64, 1, 64, 100'000'000, 1},
                                           Case{2, 7, 2, 16, 1, 16, 0, 1, 2},
                                           Case{1, 5, 1, 16, 2, 8, 3, 1, 2},
                                           Case{1, 5, 1, 12, 1, 12, 3, 1, 3},
                                           Case{2, 8, 2, 8, 1, 8, 0, 1, 1, {1, 3, 1, 1, 2}},
                                           Case{3, 6, 1, 8, 1, 6, 4, 1, 1, {1, 1, 1, 1, 1, 1}},
                                           Case{2, 9, 3, 8, 2, 4, 0, 1, 2, {4, 5}}));

TEST(RopeOp, CentralDifference) {
  const Case c{1, 3, 2, 8, 2, 4, 2, 1};
  const auto x = random_normal(48, 1), dy = random_normal(48, 2), direction = random_normal(48, 3);
  const test::RealFunction f = [&](const std::vector<std::vector<double>>& in) {
    return test::weighted_sum(run<double>(in[0], dy, c).y, dy);
  };
  EXPECT_NEAR(test::central_difference(f, {x}, 0, direction, 1e-3),
              test::weighted_sum(run<double>(x, dy, c).dx, direction), 1e-9);
}

TEST(RopeOp, ScoresDependOnTheDistanceOnly) {
  const Case near{1, 1, 1, 16, 1, 16, 3, 1};
  const auto q = random_normal(16, 1), k = random_normal(16, 2);
  const auto score = [&](int64_t at_q, int64_t at_k) {
    Case cq = near, ck = near;
    cq.start = at_q;
    ck.start = at_k;
    return test::weighted_sum(run<double>(q, q, cq).y, run<double>(k, k, ck).y);
  };
  EXPECT_NEAR(score(7, 2), score(1005, 1000), 1e-11);
  EXPECT_GT(std::abs(score(7, 2) - score(8, 2)), 1e-3);
}

// Every document turns as a sequence of its own would, and one that began before the call goes on.
TEST(RopeOp, DocumentsTurnFromTheirOwnStart) {
  const Case c{1, 9, 2, 8, 1, 8, 0, 1};
  const auto x = random_normal(9 * 16, 1), dy = random_normal(9 * 16, 2);
  for (int64_t cut = 1; cut < c.time; ++cut) {
    std::vector<int32_t> starts(9, -30);
    for (int64_t t = cut; t < c.time; ++t) starts[static_cast<size_t>(t)] = static_cast<int32_t>(cut);
    const auto r = run<double>(x, dy, c, starts);
    const auto alone = [&](const std::vector<double>& from, int64_t begin, int64_t end, int64_t position) {
      const std::vector<double> part(from.begin() + begin * 16, from.begin() + end * 16);
      Case one = c;
      one.time = end - begin;
      one.start = position;
      return run<double>(part, part, one);
    };
    auto y = alone(x, 0, cut, 30).y, dx = alone(dy, 0, cut, 30).dx;
    const auto y_rest = alone(x, cut, 9, 0).y, dx_rest = alone(dy, cut, 9, 0).dx;
    y.insert(y.end(), y_rest.begin(), y_rest.end());
    dx.insert(dx.end(), dx_rest.begin(), dx_rest.end());
    EXPECT_EQ(r.y, y) << cut;
    EXPECT_EQ(r.dx, dx) << cut;
  }
}

TEST(RopeOp, PositionOutsideTheTableIsRefused) {
  const RopeSpec spec{4, 1, 4, 10000};
  std::vector<double> x(3 * 4), table(3 * 4);
  Arena arena(0);
  Context ctx{arena};
  const auto forward = [&](std::vector<int32_t> starts) {
    rope_forward(ctx, tensor(x, {1, 3, 1, 4}), tensor(table, {3, 2, 2}), spec, tensor(starts, {1, 3}));
  };
  EXPECT_NO_THROW(forward({0, 0, 0}));
  EXPECT_THROW(forward({-1, -1, -1}), std::logic_error);
  EXPECT_THROW(forward({0, 2, 2}), std::logic_error);  // starts after its own token
  const Tensor short_table = tensor(table, {6, 1, 2}).rows(0, 2);
  std::vector<double> narrow(3 * 2);
  EXPECT_THROW(rope_forward(ctx, tensor(narrow, {1, 3, 1, 2}), short_table, {2, 1, 2, 10000}),
               std::logic_error);
  EXPECT_THROW(rope_table(ctx, tensor(table, {2, 3, 2}), 0, {8, 1, 6, 10000, 2}), std::logic_error);
}

// The sum of the four squared products of q with k e, e = 1, i, j, k from the right: coordinates 4n to 4n + 3
// are one quaternion.
double quaternionic_score(const std::vector<double>& q, const std::vector<double>& k) {
  double products[4] = {};
  for (size_t n = 0; n + 3 < q.size(); n += 4) {
    const double a = k[n], b = k[n + 1], c = k[n + 2], d = k[n + 3];
    const double turned[4][4] = {{a, b, c, d}, {-b, a, d, -c}, {-c, -d, a, b}, {-d, c, -b, a}};
    for (size_t e = 0; e < 4; ++e)
      for (size_t j = 0; j < 4; ++j) products[e] += q[n + j] * turned[e][j];
  }
  double score = 0;
  for (const double p : products) score += p * p;
  return score;
}

TEST(RopeOp, QuaternionicScoreIsRelativeWherePairsShareAFrequency) {
  const auto q = random_normal(16, 1), k = random_normal(16, 2);
  const auto score = [&](int64_t at_q, int64_t at_k, int64_t pairs_per_frequency) {
    const auto turned = [&](const std::vector<double>& x, int64_t position) {
      return run<double>(x, x, {1, 1, 1, 16, 1, 16, position, 1, pairs_per_frequency}).y;
    };
    return quaternionic_score(turned(q, at_q), turned(k, at_k));
  };
  EXPECT_NEAR(score(0, 0, 2), quaternionic_score(q, k), 1e-12);
  for (const int64_t shift : {1, 5, 1000}) {
    EXPECT_NEAR(score(7 + shift, 2 + shift, 2), score(7, 2, 2), 1e-10);
    EXPECT_GT(std::abs(score(7 + shift, 2 + shift, 1) - score(7, 2, 1)), 1e-2);
  }
  EXPECT_GT(std::abs(score(7, 2, 2) - score(8, 2, 2)), 1e-2);
}

TEST(RopeOp, TableOfPositionsEqualsTheRunningTable) {
  const RopeSpec spec{10, 1, 10, 500};
  std::vector<float> running(6 * 5 * 2), listed(3 * 5 * 2);
  std::vector<int64_t> positions = {14, 10, 15};
  Arena arena(0);
  Context ctx{arena};
  rope_table(ctx, tensor(running, {6, 5, 2}), 10, spec);
  rope_table(ctx, tensor(listed, {3, 5, 2}), tensor(positions, {3}), spec);
  for (size_t r = 0; r < 3; ++r)
    for (size_t j = 0; j < 10; ++j)
      EXPECT_EQ(listed[r * 10 + j], running[static_cast<size_t>(positions[r] - 10) * 10 + j]);
  EXPECT_FLOAT_EQ(listed[2], static_cast<float>(std::cos(14 * std::pow(500.0, -0.2))));
}

TEST(RopeOp, ColumnViewsTouchNothingElse) {
  const Case c{2, 3, 2, 4, 1, 4, 0, 1};
  const int64_t wide = 20;
  auto fused = random_normal(static_cast<size_t>(c.batch * c.time * wide), 1);
  const auto before = fused;
  std::vector<double> packed, table(static_cast<size_t>(c.time * 4));
  for (int64_t r = 0; r < 6; ++r)
    packed.insert(packed.end(), fused.begin() + r * wide + 5, fused.begin() + r * wide + 13);
  const auto expected = run<double>(packed, packed, c);
  Arena arena(0);
  Context ctx{arena};
  const Tensor turns = tensor(table, {c.time, 2, 2});
  rope_table(ctx, turns, 0, spec_of(c));
  const Tensor rows = tensor(fused, {c.batch * c.time, wide}).columns(5, 13);
  rope_forward(ctx, rows.split_last(c.heads, c.width).split_first(c.batch, c.time), turns, spec_of(c));
  for (size_t r = 0; r < 6; ++r)
    for (size_t j = 0; j < 20; ++j)
      EXPECT_EQ(fused[r * 20 + j], j >= 5 && j < 13 ? expected.y[r * 8 + j - 5] : before[r * 20 + j]);
}

TEST(RopeOp, ThreadCountChangesNoBit) {
  const Case c{3, 200, 2, 64, 2, 32, 0, 1, 1, {90, 110}};
  const auto x = random_normal<float>(3 * 200 * 2 * 64, 1);
  set_thread_count(1);
  const auto one = run<float>(x, x, c);
  set_thread_count(2);
  const auto two = run<float>(x, x, c);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dx, two.dx);
}

TEST(RopeOp, LargeStride) {
  const int64_t rows = 9, stride = int64_t{1} << 28;  // the last token starts at 2^31
  test::SparseArray<float> x(rows * stride);
  KATA_SKIP_UNLESS_MAPPED(x);
  const RopeSpec spec{2, 1, 2, 10000};
  std::vector<float> table(static_cast<size_t>(rows) * 2);
  x[(rows - 1) * stride] = 1;
  Arena arena(0);
  Context ctx{arena};
  const Tensor turns = tensor(table, {rows, 1, 2});
  rope_table(ctx, turns, 0, spec);
  rope_forward(ctx, x.tensor({rows, stride}).columns(0, 2).split_last(1, 2).split_first(1, rows), turns,
               spec);
  EXPECT_FLOAT_EQ(x[(rows - 1) * stride], std::cos(8.0f));
  EXPECT_FLOAT_EQ(x[(rows - 1) * stride + 1], std::sin(8.0f));
}

}  // namespace
}  // namespace kata
