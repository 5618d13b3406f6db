// The forms against each other: every length around the chunk and the tiles, states handed over at every cut,
// views inside fused buffers, threads, scratch, index arithmetic.
#include "ops/linear_attention_support.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::chunked_form;
using test::close;
using test::FormChoice;
using test::LinearInputs;
using test::LinearProblem;
using test::near;
using test::psd;
using test::quadratic_form;
using test::random_normal;
using test::recurrent_form;
using test::tensor;

void expect_equal_forms(const LinearProblem& p, const FormChoice& a, const FormChoice& b, double tolerance) {
  const auto in = test::random_inputs(p, 1);
  const auto x = test::run_form<double>(p, a, in), y = test::run_form<double>(p, b, in);
  SCOPED_TRACE(name_of(a) + " and " + name_of(b));
  SCOPED_TRACE(p.tokens);
  EXPECT_TRUE(close(x.o, y.o, tolerance));
  EXPECT_TRUE(close(x.mass, y.mass, tolerance));
  EXPECT_TRUE(near(x.dq, y.dq, tolerance));
  EXPECT_TRUE(near(x.dk, y.dk, tolerance));
  EXPECT_TRUE(near(x.dv, y.dv, tolerance));
  EXPECT_TRUE(near(x.dlog_decay, y.dlog_decay, tolerance));
}

class LinearForms : public ::testing::TestWithParam<LinearProblem> {
 protected:
  LinearProblem problem(int64_t tokens) const {
    LinearProblem p = GetParam();
    p.tokens = tokens;
    return p;
  }
};

TEST_P(LinearForms, AgreeAtEveryLengthAroundTheChunk) {
  const int64_t chunk = 4;
  for (int64_t tokens = 1; tokens <= 2 * chunk + 1; ++tokens) {
    expect_equal_forms(problem(tokens), quadratic_form, recurrent_form, 1e-10);
    expect_equal_forms(problem(tokens), chunked_form(chunk), recurrent_form, 1e-10);
  }
}

// Tiles of 64 queries, blocks of 128 keys, rounds of 16 chunks, chunks larger than a tile.
TEST_P(LinearForms, AgreeAcrossTilesAndRounds) {
  for (int64_t tokens : {63, 64, 65, 129, 321}) {
    expect_equal_forms(problem(tokens), quadratic_form, recurrent_form, 1e-8);
    for (int64_t chunk : {1, 7, 64, 100, 1000})
      if (tokens == 321) expect_equal_forms(problem(tokens), chunked_form(chunk), recurrent_form, 1e-8);
  }
}

TEST_P(LinearForms, StateIsHandedOverAtEveryCut) {
  const LinearProblem p = problem(9);
  const auto in = test::random_inputs(p, 1);
  const auto whole = test::run_oracle(p, in);
  for (int64_t cut = 1; cut < p.tokens; ++cut)
    for (const FormChoice& first : {chunked_form(3), recurrent_form})
      for (const FormChoice& second : {chunked_form(2), recurrent_form}) {
        SCOPED_TRACE(name_of(first) + " to " + name_of(second) + " at " + std::to_string(cut));
        const auto [o, state] = test::run_pieces<double>(p, {{0, cut, first}, {cut, p.tokens, second}}, in);
        EXPECT_TRUE(close(o, whole.o, 1e-10));
        EXPECT_TRUE(close(state, whole.state, 1e-13));
      }
}

TEST_P(LinearForms, ChunkedHandsOverToRecurrentAndToTheStep) {
  const LinearProblem p = problem(11);
  if (p.documents) return;
  const auto in = test::random_inputs(p, 1);
  const auto whole = test::run_oracle(p, in);
  const auto [o, state] = test::run_pieces<double>(p, {{0, 5, chunked_form(2)}, {5, 8, recurrent_form}}, in);
  std::vector<double> all = test::run_steps<double>(p, in, state, 8);
  for (size_t i = 0; i < all.size(); ++i)
    if (static_cast<int64_t>(i) / (p.heads * p.value_width) % p.tokens < 8) all[i] = o[i];
  EXPECT_TRUE(close(all, whole.o, 1e-10));
}

TEST_P(LinearForms, StepsFromTheEmptyStateAreTheSequence) {
  LinearProblem other = problem(4);
  other.batch = 3, other.heads = 6, other.kv_heads = 3, other.value_width = 2;
  for (const LinearProblem& p : {problem(6), other}) {
    if (p.documents) return;  // a step knows no documents
    const auto in = test::random_inputs(p, 1);
    const std::vector<double> empty(test::count(state_shape(p.map, p.read, p.size())));
    EXPECT_TRUE(close(test::run_steps<double>(p, in, empty, 0), test::run_oracle(p, in).o, 1e-10));
  }
}

TEST_P(LinearForms, ThreadsAndBatchOrderChangeNoBit) {
  LinearProblem p = problem(150);
  for (int64_t batch : {1, 5}) {
    p.batch = batch;
    const auto in = test::cast<float>(test::random_inputs(p, 1));
    LinearInputs<float> turned = in;  // batch rows 1, 2, .., 0
    for (auto* x : {&turned.q, &turned.k, &turned.v, &turned.d_o, &turned.log_decay})
      std::rotate(x->begin(), x->begin() + static_cast<int64_t>(x->size()) / batch, x->end());
    for (const FormChoice& form : {quadratic_form, chunked_form(32), recurrent_form}) {
      SCOPED_TRACE(name_of(form));
      const auto one = test::run_form<float>(p, form, in);
      const auto two = test::run_form<float>(p, form, in, {true, 2});
      auto three = test::run_form<float>(p, form, turned, {true, 3});
      for (auto* x : {&three.o, &three.mass, &three.dq, &three.dk, &three.dv, &three.dlog_decay})
        std::rotate(x->begin(), x->end() - static_cast<int64_t>(x->size()) / batch, x->end());
      if (p.documents) three = two;  // every row has documents of its own: they cannot be turned
      for (const auto& r : {two, three}) {
        EXPECT_EQ(one.o, r.o);
        EXPECT_EQ(one.mass, r.mass);
        EXPECT_EQ(one.dq, r.dq);
        EXPECT_EQ(one.dk, r.dk);
        EXPECT_EQ(one.dv, r.dv);
        EXPECT_EQ(one.dlog_decay, r.dlog_decay);
      }
    }
  }
}

// q, k, v of all heads in one buffer, as a fused projection leaves them; the gradients likewise.
TEST_P(LinearForms, ViewsInOneFusedBuffer) {
  LinearProblem p = problem(70);
  p.heads = 4, p.kv_heads = 2, p.value_width = 3;
  const int64_t d = p.map.width, nq = 4 * d, nk = 2 * d, nv = 2 * 3, width = nq + nk + nv + 3, rows = 2 * 70;
  const auto in = test::random_inputs(p, 1);
  std::vector<double> fused(static_cast<size_t>(rows * width), 7), gradients(fused.size(), 7);
  const auto view = [&](std::vector<double>& x, int64_t column, int64_t heads, int64_t inner) {
    const Tensor part = tensor(x, {rows, width}).columns(column, column + heads * inner);
    return part.split_first(2, 70).split_last(heads, inner);
  };
  const auto each = [&](std::vector<double>& wide, int64_t column, int64_t n, auto&& f) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; ++j)
        f(wide[static_cast<size_t>(r * width + column + j)], static_cast<size_t>(r * n + j));
  };
  each(fused, 1, nq, [&](double& x, size_t i) { x = in.q[i]; });
  each(fused, 1 + nq, nk, [&](double& x, size_t i) { x = in.k[i]; });
  each(fused, 1 + nq + nk, nv, [&](double& x, size_t i) { x = in.v[i]; });
  const std::vector<double> fused_before = fused;
  for (const FormChoice& form : {quadratic_form, chunked_form(16), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    const auto expected = test::run_form<double>(p, form, in);
    auto r = expected;
    std::vector<double> d_o = in.d_o, log_decay = in.log_decay;
    std::vector<int32_t> starts = test::document_starts(p);
    test::run_op([&](Context& ctx) {
      const Decay decay = test::decay_tensors(log_decay, starts, p);
      const Tensor q = view(fused, 1, 4, d), k = view(fused, 1 + nq, 2, d),
                   v = view(fused, 1 + nq + nk, 2, 3);
      const Tensor o = tensor(r.o, p.o_shape()), mass = test::mass_tensor(r.mass, p);
      linear_attention_forward(ctx, o, mass, q, k, v, settings_of(p, form), {}, {}, decay);
      linear_attention_backward(ctx, view(gradients, 1, 4, d), view(gradients, 1 + nq, 2, d),
                                view(gradients, 1 + nq + nk, 2, 3), tensor(d_o, p.o_shape()), q, k, v, o,
                                mass, settings_of(p, form), decay,
                                p.decays ? tensor(r.dlog_decay, p.decay_shape()) : Tensor());
    });
    each(gradients, 1, nq, [&](double& x, size_t i) { r.dq[i] = x; });
    each(gradients, 1 + nq, nk, [&](double& x, size_t i) { r.dk[i] = x; });
    each(gradients, 1 + nq + nk, nv, [&](double& x, size_t i) { r.dv[i] = x; });
    EXPECT_TRUE(close(r.o, expected.o, 1e-13));
    EXPECT_TRUE(close(r.dq, expected.dq, 1e-11));
    EXPECT_TRUE(close(r.dk, expected.dk, 1e-11));
    EXPECT_TRUE(close(r.dv, expected.dv, 1e-11));
    EXPECT_EQ(fused, fused_before);
    const auto untouched = [](double& x, size_t) { EXPECT_EQ(x, 7); };
    each(gradients, 0, 1, untouched);
    each(gradients, width - 2, 2, untouched);
  }
}

std::vector<LinearProblem> problems() {
  std::vector<LinearProblem> all;
  for (const auto& [map, read] : test::maps_and_reads(8, 5))
    for (const LinearProblem& p : test::faded({map, read, 2, 1, 2, 1, 5})) all.push_back(p);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Problems, LinearForms, ::testing::ValuesIn(problems()));

// Documents in one row are the documents apart.
TEST(LinearAttentionOp, DocumentsAreReadApart) {
  for (const auto& [map, read] : test::maps_and_reads(8, 5)) {
    LinearProblem p = {map, read, 1, 150, 2, 1, 5, 1, true, true};
    const auto in = test::random_inputs(p, 1);
    const std::vector<int32_t> starts = test::document_starts(p);
    for (const FormChoice& form : {quadratic_form, chunked_form(16), recurrent_form}) {
      SCOPED_TRACE(name_of(form));
      const auto joined = test::run_form<double>(p, form, in);
      for (int64_t begin = 0, end; begin < p.tokens; begin = end) {
        for (end = begin + 1; end < p.tokens && starts[static_cast<size_t>(end)] == begin;) ++end;
        LinearProblem alone = p;
        alone.documents = false;
        alone.tokens = end - begin;
        const auto cut = [&](const std::vector<double>& x) {
          const auto row = static_cast<int64_t>(x.size()) / p.tokens;
          return std::vector<double>(x.begin() + begin * row, x.begin() + end * row);
        };
        const auto apart = test::run_form<double>(
            alone, form, {cut(in.q), cut(in.k), cut(in.v), cut(in.d_o), cut(in.log_decay)});
        EXPECT_TRUE(near(cut(joined.o), apart.o, 1e-10));
        EXPECT_TRUE(near(cut(joined.dq), apart.dq, 1e-10));
        EXPECT_TRUE(near(cut(joined.dk), apart.dk, 1e-10));
        EXPECT_TRUE(near(cut(joined.dv), apart.dv, 1e-10));
        EXPECT_TRUE(near(cut(joined.dlog_decay), apart.dlog_decay, 1e-10));
      }
    }
  }
}

// A factor of e^-1e6 between two tokens leaves the finer ones around it alone.
TEST(LinearAttentionOp, OneStrongDecayDoesNotBlurTheOthers) {
  const LinearProblem p = {psd(8, 1), Read::raw, 1, 200, 1, 1, 4, 1, true, false};
  auto in = test::random_inputs(p, 1);
  for (size_t t = 0; t < 200; ++t) in.log_decay[t] = t % 37 == 5 ? -1e6 : -1e-3 * static_cast<double>(t % 7);
  const auto expected = test::run_oracle(p, in);
  for (const FormChoice& form : {quadratic_form, chunked_form(64), recurrent_form})
    EXPECT_TRUE(
        close(test::run_form<float>(p, form, test::cast<float>(in), test::forward_only).o, expected.o, 1e-6))
        << name_of(form);
}

// One head with so many features that they are built in steps and cut into blocks; the step likewise.
TEST(LinearAttentionOp, ManyFeaturesOfOneHead) {
  const LinearProblem p = {psd(48, 1), Read::normalised, 1, 150, 1, 1, 40};
  expect_equal_forms(p, chunked_form(64), quadratic_form, 1e-9);
  expect_equal_forms(p, recurrent_form, quadratic_form, 1e-9);
  const auto in = test::random_inputs(p, 1);
  const std::vector<double> empty(test::count(state_shape(p.map, p.read, p.size())));
  EXPECT_TRUE(close(test::run_steps<double>(p, in, empty, 0),
                    test::run_form<double>(p, quadratic_form, in, test::forward_only).o, 1e-9));
}

// More pairs of a batch row and a key head than the chunked form walks at a time.
TEST(LinearAttentionOp, ManyHeads) {
  const LinearProblem p = {psd(6, 2), Read::normalised, 9, 40, 4, 2, 3};
  expect_equal_forms(p, chunked_form(2), quadratic_form, 1e-9);
  expect_equal_forms(p, recurrent_form, quadratic_form, 1e-9);
  const auto in = test::random_inputs(p, 1);
  const auto [o, state] =
      test::run_pieces<double>(p, {{0, 17, chunked_form(4)}, {17, 40, chunked_form(8)}}, in);
  const auto whole = test::run_oracle(p, in);
  EXPECT_TRUE(close(o, whole.o, 1e-9));
  EXPECT_TRUE(close(state, whole.state, 1e-12));
}

TEST(LinearAttentionOp, ScratchOfTheChunkedFormDoesNotGrowWithT) {
  const auto planned = [](int64_t tokens) {
    Arena plan;
    Context ctx{plan};
    const Tensor x(nullptr, DType::f32, {1, tokens, 2, 64}), mass(nullptr, DType::f32, {1, tokens, 2});
    const LinearAttention settings{psd(64, 1), Read::normalised, Form::chunked};
    linear_attention_forward(ctx, x, mass, x, x, x, settings);
    linear_attention_backward(ctx, x, x, x, x, x, x, x, x, mass, settings);
    return plan.peak();
  };
  EXPECT_EQ(planned(1024), planned(65536));
}

TEST(LinearAttentionOp, StateEntriesCountTheMass) {
  EXPECT_EQ(state_entries(psd(64, 1), Read::raw, 2, 64), 266240);
  EXPECT_EQ(state_entries(psd(64, 2), Read::raw, 2, 64), 135168);
  EXPECT_EQ(state_entries(psd(64, 1), Read::normalised, 2, 64), 266240 + 2 * 2080);
}

TEST(LinearAttentionOp, RefusesWhatItCannotDo) {
  Arena plan;
  Context ctx{plan};
  const auto null = [](const Shape& shape) { return Tensor(nullptr, DType::f32, shape); };
  const Tensor x = null({1, 4, 2, 8}), mass = null({1, 4, 2}), state = null({1, 2, 36, 9});
  const LinearAttention quadratic{psd(8, 1)}, raw{psd(8, 1), Read::raw};
  const LinearAttention chunked{psd(8, 1), Read::normalised, Form::chunked};
  EXPECT_NO_THROW(linear_attention_forward(ctx, x, mass, x, x, x, chunked, state, state));
  EXPECT_THROW(linear_attention_forward(ctx, x, mass, x, x, x, quadratic, state), std::logic_error);
  EXPECT_THROW(linear_attention_forward(ctx, x, mass, x, x, x, quadratic, {}, state), std::logic_error);
  EXPECT_THROW(linear_attention_forward(ctx, x, mass, x, x, x, raw), std::logic_error);
  EXPECT_THROW(linear_attention_forward(ctx, x, {}, x, x, x, quadratic), std::logic_error);
  EXPECT_THROW(linear_attention_forward(ctx, x, mass, x, x, x, {psd(8, 3)}), std::logic_error);
  EXPECT_THROW(linear_attention_forward(ctx, x, mass, x, x, x, {psd(4, 1)}), std::logic_error);
  EXPECT_THROW(linear_attention_forward(ctx, x, mass, x, null({1, 4, 3, 8}), null({1, 4, 3, 8}), quadratic),
               std::logic_error);
  EXPECT_THROW(linear_attention_step(ctx, null({1, 2, 8}), null({1, 2, 8}), null({1, 2, 8}), null({1, 2, 8}),
                                     null({1, 2, 35, 9}), psd(8, 1), Read::normalised),
               std::logic_error);
}

// Tokens 2^29 and batch rows 2^31 elements apart: offsets above 2^31 in q, k, v, o and their gradients.
TEST(LinearAttentionOp, LargeStrides) {
  const int64_t stride = int64_t{1} << 29, tokens = 4, d = 4;
  const LinearProblem p = {psd(d, 1), Read::normalised, 2, tokens, 1, 1, d};
  const auto in = test::random_inputs(p, 1);
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
  const test::Threads threads(1);
  for (const FormChoice& form : {quadratic_form, chunked_form(2), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    const auto expected = test::run_form<double>(p, form, in);
    std::vector<double> mass(test::count(p.mass_shape()));
    test::run_op([&](Context& ctx) {
      const Tensor m = tensor(mass, p.mass_shape());
      linear_attention_forward(ctx, view(4), m, view(0), view(1), view(2), settings_of(p, form));
      linear_attention_backward(ctx, view(5), view(6), view(7), view(3), view(0), view(1), view(2), view(4),
                                m, settings_of(p, form));
    });
    const std::vector<double>* outputs[] = {&expected.o, &expected.dq, &expected.dk, &expected.dv};
    for (size_t i = 0; i < 4; ++i)
      each(4 + i, [&](double& x, size_t at) { EXPECT_NEAR(x, (*outputs[i])[at], 1e-12) << i << " " << at; });
  }
}

}  // namespace
}  // namespace kata
