#include "ops/decay_gate.h"

#include <limits>

#include "base/parallel.h"
#include "ops/oracle/decay_gate.h"
#include "support/compare.h"
#include "support/gradient.h"
#include "support/op_runner.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::random_normal;
using test::tensor;

struct Case {
  int64_t rows, heads;
  double scale;  // of x
};

template <class T>
struct Inputs {
  std::vector<T> x, a_log, bias, dlog, ddt;
};

template <class T>
struct Result {
  std::vector<T> log_decay, dt, dx, da, db;
};

template <class To, class From>
Inputs<To> cast(const Inputs<From>& in) {
  return {cast<To>(in.x), cast<To>(in.a_log), cast<To>(in.bias), cast<To>(in.dlog), cast<To>(in.ddt)};
}

Inputs<double> random_inputs(int64_t rows, int64_t heads, double scale) {
  const auto n = static_cast<size_t>(rows * heads), h = static_cast<size_t>(heads);
  return {random_normal(n, 1, scale), random_normal(h, 2), random_normal(h, 3), random_normal(n, 4),
          random_normal(n, 5)};
}

// Without `with_dt`, dt and its gradient are left out. Parameter gradients start from `start`.
template <class T>
Result<T> run(Inputs<T> in, int64_t rows, int64_t heads, bool with_dt = true, T start = 0) {
  const size_t n = in.x.size(), h = in.a_log.size();
  Result<T> r{std::vector<T>(n, NAN), std::vector<T>(with_dt ? n : 0, NAN), std::vector<T>(n, NAN),
              std::vector<T>(h, start), std::vector<T>(h, start)};
  test::run_op([&](Context& ctx) {
    const Shape shape{rows, heads}, one{heads};
    const Tensor x = tensor(in.x, shape), a = tensor(in.a_log, one), bias = tensor(in.bias, one);
    decay_gate_forward(ctx, tensor(r.log_decay, shape), with_dt ? tensor(r.dt, shape) : Tensor(), x, a, bias);
    decay_gate_backward(ctx, tensor(r.dx, shape), tensor(r.da, one), tensor(r.db, one),
                        tensor(in.dlog, shape), with_dt ? tensor(in.ddt, shape) : Tensor(), x, a, bias);
  });
  return r;
}

class DecayGate : public ::testing::TestWithParam<Case> {
 protected:
  int64_t rows = GetParam().rows, heads = GetParam().heads;
  Inputs<double> in = random_inputs(rows, heads, GetParam().scale);
};

TEST_P(DecayGate, DoubleAgainstTheOracleAndItsComplexStep) {
  const auto expected = oracle::decay_gate<double>(in.x, in.a_log, in.bias);
  for (const bool with_dt : {true, false}) {
    const auto r = run<double>(in, rows, heads, with_dt);
    EXPECT_TRUE(close(r.log_decay, expected.log_decay, 1e-14));
    if (with_dt) {
      EXPECT_TRUE(close(r.dt, expected.dt, 1e-14));
    }
    const auto f = [&](const test::ComplexInputs& x) {
      const auto gate = oracle::decay_gate<test::Complex>(x[0], x[1], x[2]);
      const test::Complex sum = test::weighted_sum(gate.log_decay, in.dlog);
      return with_dt ? sum + test::weighted_sum(gate.dt, in.ddt) : sum;
    };
    const std::vector<std::vector<double>> inputs = {in.x, in.a_log, in.bias};
    EXPECT_TRUE(close(r.dx, test::complex_step(f, inputs, 0), 1e-13));
    EXPECT_TRUE(close(r.da, test::complex_step(f, inputs, 1), 1e-13));
    EXPECT_TRUE(close(r.db, test::complex_step(f, inputs, 2), 1e-13));
  }
}

TEST_P(DecayGate, FloatAgainstDouble) {
  const auto inf = cast<float>(in);
  const auto f = run<float>(inf, rows, heads);
  const auto d = run<double>(cast<double>(inf), rows, heads);
  EXPECT_TRUE(close(f.log_decay, d.log_decay, 1e-6));
  EXPECT_TRUE(close(f.dt, d.dt, 1e-6));
  EXPECT_TRUE(close(f.dx, d.dx, 1e-6));
  EXPECT_TRUE(close(f.da, d.da, 1e-5));
  EXPECT_TRUE(close(f.db, d.db, 1e-5));
}

TEST_P(DecayGate, ParameterGradientsAreAddedTo) {
  const auto from_zero = run<double>(in, rows, heads), from_three = run<double>(in, rows, heads, true, 3.0);
  for (size_t h = 0; h < in.a_log.size(); ++h) {
    EXPECT_NEAR(from_three.da[h], from_zero.da[h] + 3, 1e-12 * (1 + std::abs(from_zero.da[h])));
    EXPECT_NEAR(from_three.db[h], from_zero.db[h] + 3, 1e-12 * (1 + std::abs(from_zero.db[h])));
  }
  EXPECT_EQ(from_three.dx, from_zero.dx);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DecayGate,
                         ::testing::Values(Case{1, 1, 1}, Case{3, 7, 1}, Case{5, 33, 4}, Case{2, 16, 1e-6},
                                           Case{2, 16, 100}, Case{300, 2, 1}));

template <class T>
class DecayGateEnds : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DecayGateEnds, Floats);

TYPED_TEST(DecayGateEnds, AreStable) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> x = {1e30f, 500, 0, -60, -500, -infinity, T(NAN)};
  const std::vector<T> one(7, 1), a_log(7, static_cast<T>(std::log(2.0))), bias(7);
  const auto r = run<T>({x, a_log, bias, one, std::vector<T>(7)}, 1, 7);
  const double eps = 4 * std::numeric_limits<T>::epsilon();
  EXPECT_EQ(r.dt[0], T(1e30f));
  EXPECT_EQ(r.dt[1], T(500));
  EXPECT_NEAR(r.dt[2], std::log(2.0), eps);
  EXPECT_NEAR(r.dt[3] / std::exp(-60.0), 1, eps);
  for (size_t j = 0; j < 6; ++j) {
    EXPECT_LE(r.log_decay[j], 0) << x[j];
    EXPECT_NEAR(r.log_decay[j] / 2, -r.dt[j], eps * static_cast<double>(r.dt[j])) << x[j];
    EXPECT_TRUE(std::isfinite(r.dx[j]) && std::isfinite(r.da[j])) << x[j];
  }
  for (const size_t left : {4, 5}) EXPECT_NEAR(r.dt[left], 0, 2e-38) << x[left];
  EXPECT_NEAR(r.dx[0], -2, 2 * eps);
  EXPECT_NEAR(r.dx[2], -1, eps);
  EXPECT_NEAR(r.dx[3] / std::exp(-60.0), -2, 2 * eps);
  EXPECT_TRUE(std::isnan(r.log_decay[6]) && std::isnan(r.dt[6]) && std::isnan(r.dx[6]));
}

// Each value by itself, since a norm over many would hide the small ones.
TEST(DecayGateOp, FloatStepsKeepTheirDigitsEverywhere) {
  std::vector<float> x;
  for (float z = -85; z < 85; z += 0.0137f) x.push_back(z);
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1), zeros(x.size());
  const auto r = run<float>({x, {0}, {0}, zeros, ones}, n, 1);
  for (size_t i = 0; i < x.size(); ++i) {
    const double z = x[i], dt = std::log1p(std::exp(-std::abs(z))) + std::max(z, 0.0);
    EXPECT_NEAR(r.dt[i] / dt, 1, 5e-7) << z;
    EXPECT_NEAR(r.dx[i] * (1 + std::exp(-z)), 1, 5e-7) << z;
  }
}

TEST(DecayGateOp, StridedRowsEqualTheContiguousForm) {
  const int64_t rows = 5, heads = 3, fused = 11, first = 4;
  Inputs<double> in = random_inputs(rows, heads, 1);
  auto wide = random_normal(static_cast<size_t>(rows * fused), 6);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(wide.begin() + r * fused + first, heads, in.x.begin() + r * heads);
  const auto expected = run<double>(in, rows, heads);
  const Shape shape{rows, heads};
  std::vector<double> log_decay(in.x.size()), dt(in.x.size()), da(3), db(3);
  std::vector<double> dwide(static_cast<size_t>(rows * (fused + 2)), 7);
  test::run_op([&](Context& ctx) {
    const Tensor x = tensor(wide, {rows, fused}).columns(first, first + heads);
    const Tensor dx = tensor(dwide, {rows, fused + 2}).columns(1, 1 + heads);
    const Tensor a = tensor(in.a_log, {heads}), bias = tensor(in.bias, {heads});
    decay_gate_forward(ctx, tensor(log_decay, shape), tensor(dt, shape), x, a, bias);
    decay_gate_backward(ctx, dx, tensor(da, {heads}), tensor(db, {heads}), tensor(in.dlog, shape),
                        tensor(in.ddt, shape), x, a, bias);
  });
  EXPECT_EQ(log_decay, expected.log_decay);
  EXPECT_EQ(dt, expected.dt);
  EXPECT_EQ(da, expected.da);
  EXPECT_EQ(db, expected.db);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < fused + 2; ++j) {
      const bool inside = j >= 1 && j < 1 + heads;
      const double want = inside ? expected.dx[static_cast<size_t>(r * heads + j - 1)] : 7;
      EXPECT_EQ(dwide[static_cast<size_t>(r * (fused + 2) + j)], want) << r << " " << j;
    }
}

TEST(DecayGateOp, MayOverwriteItsInputs) {
  const auto in = cast<float>(random_inputs(4, 10, 1));
  const auto expected = run<float>(in, 4, 10);
  const Shape shape{4, 10}, one{10};
  for (const bool over_ddt : {false, true}) {
    auto copy = in;
    std::vector<float> da(10), db(10);
    const Tensor dlog = tensor(copy.dlog, shape), ddt = tensor(copy.ddt, shape), x = tensor(copy.x, shape);
    const Tensor a = tensor(copy.a_log, one), bias = tensor(copy.bias, one);
    test::run_op([&](Context& ctx) {
      decay_gate_backward(ctx, over_ddt ? ddt : dlog, tensor(da, one), tensor(db, one), dlog, ddt, x, a,
                          bias);
    });
    EXPECT_EQ(over_ddt ? copy.ddt : copy.dlog, expected.dx);
    EXPECT_EQ(da, expected.da);
    EXPECT_EQ(db, expected.db);
    test::run_op([&](Context& ctx) { decay_gate_forward(ctx, x, {}, x, a, bias); });
    EXPECT_EQ(copy.x, expected.log_decay);
  }
}

TEST(DecayGateOp, ThreadCountChangesNoBit) {
  const auto in = cast<float>(random_inputs(2000, 16, 1));
  set_thread_count(1);
  const auto one = run<float>(in, 2000, 16);
  set_thread_count(2);
  const auto two = run<float>(in, 2000, 16);
  EXPECT_EQ(one.log_decay, two.log_decay);
  EXPECT_EQ(one.dt, two.dt);
  EXPECT_EQ(one.dx, two.dx);
  EXPECT_EQ(one.da, two.da);
  EXPECT_EQ(one.db, two.db);
}

}  // namespace
}  // namespace kata
