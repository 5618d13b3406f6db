#include "ops/oracle/softmax_attention.h"

#include "ops/softmax_attention_support.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::cast;
using test::close;
using test::count;
using test::expect_same_bits;
using test::random_inputs;
using test::random_normal;
using test::run;
using test::scale_of;
using test::shape_of;
using test::tensor;
using test::Threads;
using Case = test::SoftmaxCase;
template <class T>
using Inputs = test::SoftmaxInputs<T>;
template <class T>
using Result = test::SoftmaxResult<T>;

class Softmax : public ::testing::TestWithParam<Case> {};

TEST_P(Softmax, DoubleAgainstTheOracleAndItsComplexStep) {
  const AttentionSize& s = GetParam().size;
  const auto in = random_inputs(GetParam());
  const auto r = run<double>(s, in);
  const auto expected = oracle::softmax_attention<double>(s, in.q, in.k, in.v, scale_of(s));
  EXPECT_TRUE(close(r.o, expected.o, 1e-12));
  EXPECT_TRUE(close(r.lse, expected.lse, 1e-12));
  if (s.tokens > 20) return;  // the complex step is for tiny sizes; the central difference covers the others
  const auto f = [&](const test::ComplexInputs& x) {
    return test::weighted_sum(oracle::softmax_attention<test::Complex>(s, x[0], x[1], x[2], scale_of(s)).o,
                              in.d_o);
  };
  EXPECT_TRUE(test::near(r.dq, test::complex_step(f, {in.q, in.k, in.v}, 0), 1e-11));
  EXPECT_TRUE(test::near(r.dk, test::complex_step(f, {in.q, in.k, in.v}, 1), 1e-11));
  EXPECT_TRUE(test::near(r.dv, test::complex_step(f, {in.q, in.k, in.v}, 2), 1e-11));
}

TEST_P(Softmax, GradientIsTheCentralDifference) {
  const AttentionSize& s = GetParam().size;
  const auto in = random_inputs(GetParam());
  const auto r = run<double>(s, in);
  const auto f = [&](const std::vector<std::vector<double>>& x) {
    return test::weighted_sum(run<double>(s, {x[0], x[1], x[2], in.d_o}).o, in.d_o);
  };
  const std::vector<double>* gradients[] = {&r.dq, &r.dk, &r.dv};
  for (size_t which = 0; which < 3; ++which) {
    const auto direction = random_normal(gradients[which]->size(), 9 + which);
    const double norm = std::sqrt(test::weighted_sum(*gradients[which], *gradients[which])) + 1e-3;
    const double slope = test::weighted_sum(*gradients[which], direction);
    EXPECT_NEAR(slope / norm, test::central_difference(f, {in.q, in.k, in.v}, which, direction, 1e-6) / norm,
                1e-5);
  }
}

TEST_P(Softmax, OneDocumentARowIsNoStartsToTheBit) {
  const AttentionSize& s = GetParam().size;
  const auto in = cast<float>(random_inputs(GetParam()));
  for (const int32_t start : {0, -9}) {
    const std::vector<int32_t> starts(count({s.batch, s.tokens}), start);
    expect_same_bits(run<float>(s, in, 1, starts), run<float>(s, in));
  }
}

TEST_P(Softmax, FloatAgainstDouble) {
  const AttentionSize& s = GetParam().size;
  const auto in = cast<float>(random_inputs(GetParam()));
  const auto f = run<float>(s, in);
  const auto d = run<double>(s, cast<double>(in));
  // A score of size s carries an error of s eps into the exponential.
  const double tolerance = 1e-6 * (4 + GetParam().scale * GetParam().scale * 8);
  EXPECT_TRUE(close(f.o, d.o, tolerance));
  EXPECT_TRUE(close(f.lse, d.lse, 1e-6));
  EXPECT_TRUE(test::near(cast<double>(f.dq), d.dq, tolerance));
  EXPECT_TRUE(test::near(cast<double>(f.dk), d.dk, tolerance));
  EXPECT_TRUE(test::near(cast<double>(f.dv), d.dv, tolerance));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Softmax,
                         ::testing::Values(Case{{1, 1, 1, 1, 4, 3}}, Case{{1, 9, 1, 1, 5, 3}},
                                           Case{{2, 5, 4, 2, 6, 7}}, Case{{2, 7, 3, 1, 1, 1}},
                                           Case{{1, 9, 1, 1, 4, 4}, 1e-6}, Case{{1, 9, 1, 1, 4, 4}, 5},
                                           Case{{1, 64, 2, 1, 8, 5}}, Case{{2, 65, 2, 2, 8, 16}},
                                           Case{{1, 129, 1, 1, 16, 8}}, Case{{1, 330, 2, 1, 8, 8}}));

// Scores of 1e4 overflow exp unless the maximum comes off first, in whatever order the large keys arrive.
TEST(SoftmaxAttentionOp, HugeScoresFollowTheLargest) {
  const AttentionSize s = {1, 200, 1, 1, 1, 1};
  Inputs<float> in{std::vector<float>(200, 1), std::vector<float>(200), std::vector<float>(200),
                   std::vector<float>(200, 1)};
  for (size_t t = 0; t < 200; ++t) {
    in.k[t] = t % 2 == 0 ? 100.0f * static_cast<float>(t) : -1e30f;
    in.v[t] = static_cast<float>(t);
  }
  const auto r = run<float>(s, in);
  for (size_t t = 0; t < 200; ++t) EXPECT_NEAR(r.o[t], static_cast<float>(t / 2 * 2), 1e-4) << t;
  for (const auto* x : {&r.lse, &r.dq, &r.dk, &r.dv})
    for (const float value : *x) EXPECT_TRUE(std::isfinite(value));
}

TEST(SoftmaxAttentionOp, CausalToTheBitAndZeroInputsAverage) {
  const AttentionSize s = {1, 150, 2, 1, 8, 4};
  const auto in = cast<float>(random_inputs({s}));
  const auto before = run<float>(s, in);
  const auto documents = test::starts_of_rows(1, s.tokens, {40, 30, 80});
  const auto before_apart = run<float>(s, in, 1, documents);
  for (int64_t t : {1, 31, 64, 149}) {
    Inputs<float> changed = in;
    std::fill(changed.k.begin() + t * 8, changed.k.end(), 50.0f);
    std::fill(changed.v.begin() + t * 4, changed.v.end(), 1e9f);
    std::fill(changed.q.begin() + t * 16, changed.q.end(), -50.0f);
    const auto after = run<float>(s, changed);
    EXPECT_TRUE(std::equal(before.o.begin(), before.o.begin() + t * 8, after.o.begin())) << t;
    EXPECT_NE(before.o[static_cast<size_t>(t * 8)], after.o[static_cast<size_t>(t * 8)]);
    const auto after_apart = run<float>(s, changed, 1, documents);
    EXPECT_TRUE(std::equal(before_apart.o.begin(), before_apart.o.begin() + t * 8, after_apart.o.begin()));
  }
  Inputs<float> zero = in;
  std::fill(zero.k.begin(), zero.k.end(), 0.0f);
  std::fill(zero.v.begin(), zero.v.end(), 1.0f);
  for (const float o : run<float>(s, zero).o) EXPECT_NEAR(o, 1, 1e-6);
}

TEST(SoftmaxAttentionOp, ThreadsAndBatchOrderChangeNoBit) {
  for (int64_t batch : {1, 3}) {
    const AttentionSize s = {batch, 300, 2, 1, 16, 8};
    const auto in = cast<float>(random_inputs({s}));
    Inputs<float> turned = in;
    for (auto* x : {&turned.q, &turned.k, &turned.v, &turned.d_o})
      std::rotate(x->begin(), x->begin() + static_cast<int64_t>(x->size()) / batch, x->end());
    const auto one = run<float>(s, in, 1), two = run<float>(s, in, 2);
    auto three = run<float>(s, turned, 3);
    for (auto* x : {&three.o, &three.lse, &three.dq, &three.dk, &three.dv})
      std::rotate(x->begin(), x->end() - static_cast<int64_t>(x->size()) / batch, x->end());
    expect_same_bits(two, one);
    expect_same_bits(three, one);
    const auto documents = test::starts_of_rows(batch, s.tokens, {100, 30, 170});
    expect_same_bits(run<float>(s, in, 2, documents), run<float>(s, in, 1, documents));
  }
}

TEST(SoftmaxAttentionOp, FusedViewsEqualTheContiguousForm) {
  const AttentionSize s = {2, 70, 4, 2, 6, 6};
  const auto in = random_inputs({s});
  const auto expected = run<double>(s, in);
  const int64_t width = 24 + 12 + 12 + 1, rows = 140;
  std::vector<double> fused(static_cast<size_t>(rows * width)), gradients(fused.size(), 7), d_o = in.d_o;
  const auto view = [&](std::vector<double>& x, int64_t column, int64_t heads) {
    const Tensor part = tensor(x, {rows, width}).columns(column, column + heads * 6);
    return part.split_first(2, 70).split_last(heads, 6);
  };
  for (size_t r = 0; r < 140; ++r) {
    std::copy_n(&in.q[r * 24], 24, &fused[r * 49]);
    std::copy_n(&in.k[r * 12], 12, &fused[r * 49 + 24]);
    std::copy_n(&in.v[r * 12], 12, &fused[r * 49 + 36]);
  }
  Result<double> r = expected;
  test::run_op([&](Context& ctx) {
    const Tensor q = view(fused, 0, 4), k = view(fused, 24, 2), v = view(fused, 36, 2);
    const Tensor o = tensor(r.o, {2, 70, 4, 6}), lse = tensor(r.lse, {2, 70, 4});
    softmax_attention_forward(ctx, o, lse, q, k, v, scale_of(s));
    softmax_attention_backward(ctx, view(gradients, 0, 4), view(gradients, 24, 2), view(gradients, 36, 2),
                               tensor(d_o, {2, 70, 4, 6}), q, k, v, o, lse, scale_of(s));
  });
  EXPECT_TRUE(close(r.o, expected.o, 1e-14));
  for (size_t row = 0; row < 140; ++row) {
    for (size_t j = 0; j < 24; ++j) EXPECT_NEAR(gradients[row * 49 + j], expected.dq[row * 24 + j], 1e-13);
    for (size_t j = 0; j < 12; ++j)
      EXPECT_NEAR(gradients[row * 49 + 24 + j], expected.dk[row * 12 + j], 1e-13);
    for (size_t j = 0; j < 12; ++j)
      EXPECT_NEAR(gradients[row * 49 + 36 + j], expected.dv[row * 12 + j], 1e-13);
    EXPECT_EQ(gradients[row * 49 + 48], 7);
  }
}

TEST(SoftmaxAttentionOp, RefusesWrongShapes) {
  Arena plan;
  Context ctx{plan};
  const auto null = [](const Shape& s) { return Tensor(nullptr, DType::f32, s); };
  const Tensor x = null({1, 4, 2, 8}), lse = null({1, 4, 2}), row = null({1, 2, 8});
  EXPECT_NO_THROW(softmax_attention_forward(ctx, x, lse, x, x, x, 1));
  EXPECT_THROW(softmax_attention_forward(ctx, x, null({1, 4, 1}), x, x, x, 1), std::logic_error);
  EXPECT_THROW(softmax_attention_forward(ctx, x, lse, x, null({1, 5, 2, 8}), x, 1), std::logic_error);
  const Tensor five = null({1, 5, 2, 8}), starts = Tensor(nullptr, DType::i32, {1, 5});
  const Tensor starts_of_four(nullptr, DType::i32, {1, 4});
  EXPECT_NO_THROW(softmax_attention_forward(ctx, x, lse, x, five, five, 1, starts_of_four, 1));
  EXPECT_THROW(softmax_attention_forward(ctx, x, lse, x, five, five, 1, starts, 1), std::logic_error);
  EXPECT_THROW(softmax_attention_forward(ctx, x, lse, x, five, five, 1, {}, 2), std::logic_error);
  EXPECT_THROW(softmax_attention_forward(ctx, x, lse, x, five, five, 1, {}, -1), std::logic_error);
  EXPECT_THROW(softmax_attention_forward(ctx, x, lse, x, five, x, 1, {}, 1), std::logic_error);
  EXPECT_THROW(softmax_attention_forward(ctx, five, lse, x, five, five, 1, {}, 1), std::logic_error);
  EXPECT_THROW(softmax_attention_forward(ctx, x, lse, x, x, x, 1, starts), std::logic_error);
  EXPECT_THROW(softmax_attention_backward(ctx, x, x, x, x, x, x, x, x, lse, 1, starts), std::logic_error);
  EXPECT_NO_THROW(softmax_attention_step(ctx, row, row, x, x, 4, 1, Tensor(nullptr, DType::i32, {1})));
  EXPECT_THROW(softmax_attention_step(ctx, row, row, x, x, 4, 1, starts), std::logic_error);
  EXPECT_THROW(softmax_attention_step(ctx, row, row, x, x, 5, 1), std::logic_error);
  EXPECT_THROW(softmax_attention_step(ctx, row, row, x, x, 0, 1), std::logic_error);
}

// Tokens 2^29 elements apart, batch rows 2^31.
TEST(SoftmaxAttentionOp, LargeStrides) {
  const int64_t stride = int64_t{1} << 29, tokens = 4, d = 4;
  const AttentionSize s = {2, tokens, 1, 1, d, d};
  const auto in = random_inputs({s});
  const auto expected = run<double>(s, in);
  std::vector<std::unique_ptr<test::SparseArray<double>>> wide;
  for (int i = 0; i < 8; ++i) {
    wide.push_back(std::make_unique<test::SparseArray<double>>(2 * tokens * stride));
    KATA_SKIP_UNLESS_MAPPED(*wide.back());
  }
  const auto view = [&](size_t i) {
    return wide[i]->tensor({2, tokens * stride}).split_last(tokens, stride).columns(0, d).split_last(1, d);
  };
  const auto each = [&](size_t which, auto&& f) {
    for (int64_t r = 0; r < 2 * tokens; ++r)
      for (int64_t j = 0; j < d; ++j) f((*wide[which])[r * stride + j], static_cast<size_t>(r * d + j));
  };
  const std::vector<double>* inputs[] = {&in.q, &in.k, &in.v, &in.d_o};
  for (size_t i = 0; i < 4; ++i) each(i, [&](double& x, size_t at) { x = (*inputs[i])[at]; });
  std::vector<double> lse(static_cast<size_t>(2 * tokens));
  const Threads threads(1);
  test::run_op([&](Context& ctx) {
    const Tensor l = tensor(lse, {2, tokens, 1});
    softmax_attention_forward(ctx, view(4), l, view(0), view(1), view(2), scale_of(s));
    softmax_attention_backward(ctx, view(5), view(6), view(7), view(3), view(0), view(1), view(2), view(4), l,
                               scale_of(s));
  });
  const std::vector<double>* outputs[] = {&expected.o, &expected.dq, &expected.dk, &expected.dv};
  for (size_t i = 0; i < 4; ++i)
    each(4 + i, [&](double& x, size_t at) { EXPECT_NEAR(x, (*outputs[i])[at], 1e-13) << i << " " << at; });
}

}  // namespace
}  // namespace kata
