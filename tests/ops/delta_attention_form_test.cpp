// The forms of the delta rule against each other: every length around the chunk and the segments, states
// handed over at every cut, views inside fused buffers, threads, float, scratch, index arithmetic.
#include "ops/delta_attention_support.h"
#include "support/sparse.h"

namespace kata {
namespace {

using test::chunked_form;
using test::close;
using test::FormChoice;
using test::LinearProblem;
using test::psd;
using test::psd_sum;
using test::quadratic_form;
using test::recurrent_form;
using test::tensor;

void expect_equal_forms(const LinearProblem& p, const FormChoice& a, const FormChoice& b, double tolerance) {
  const auto in = test::random_delta_inputs(p, 1);
  const auto x = test::run_delta<double>(p, a, in), y = test::run_delta<double>(p, b, in);
  SCOPED_TRACE(name_of(a) + " and " + name_of(b) + ", T " + std::to_string(p.tokens));
  test::expect_values(x, y, tolerance);
  test::expect_gradients(x, y, tolerance);
}

class DeltaForms : public ::testing::TestWithParam<LinearProblem> {
 protected:
  LinearProblem problem(int64_t tokens) const {
    LinearProblem p = GetParam();
    p.tokens = tokens;
    return p;
  }
};

TEST_P(DeltaForms, AgreeAtEveryLengthAroundTheChunk) {
  const int64_t chunk = 4;
  for (int64_t tokens = 1; tokens <= 2 * chunk + 1; ++tokens)
    expect_equal_forms(problem(tokens), chunked_form(chunk), recurrent_form, 1e-12);
}

// Tiles of 64 tokens in blocks of 16 keys, several segments of states, chunks beyond the largest.
TEST_P(DeltaForms, AgreeAcrossTilesAndSegments) {
  for (int64_t tokens : {15, 16, 17, 63, 64, 65, 128, 129, 200})
    expect_equal_forms(problem(tokens), chunked_form(64), recurrent_form, 1e-11);
  for (int64_t chunk : {1, 7, 16, 40, 65, 1000})
    expect_equal_forms(problem(130), chunked_form(chunk), chunked_form(64), 1e-11);
}

TEST_P(DeltaForms, StateIsHandedOverAtEveryCut) {
  const LinearProblem p = problem(9);
  const auto in = test::random_delta_inputs(p, 1);
  const auto whole = test::delta_oracle(p, in);
  for (int64_t cut = 1; cut < p.tokens; ++cut)
    for (const FormChoice& first : {chunked_form(3), recurrent_form})
      for (const FormChoice& second : {chunked_form(2), recurrent_form}) {
        SCOPED_TRACE(name_of(first) + " to " + name_of(second) + " at " + std::to_string(cut));
        test::expect_values(test::run_delta_pieces<double>(p, {{0, cut, first}, {cut, p.tokens, second}}, in),
                            whole, 1e-12);
      }
}

TEST_P(DeltaForms, ChunkedHandsOverToRecurrentAndToTheStep) {
  const LinearProblem p = problem(11);
  if (p.documents) return;  // a step knows no documents
  const auto in = test::random_delta_inputs(p, 1);
  const auto whole = test::delta_oracle(p, in);
  const auto first = test::run_delta_pieces<double>(p, {{0, 5, chunked_form(2)}, {5, 8, recurrent_form}}, in);
  auto all = test::run_delta_steps<double>(p, in, first.state, 8);
  test::paste_tokens(p, all.o, test::cut_tokens(p, first.o, 0, 8), 0);
  EXPECT_TRUE(close(all.o, whole.o, 1e-12));
  EXPECT_TRUE(close(all.state, whole.state, 1e-12));
}

TEST_P(DeltaForms, StepsFromTheEmptyStateAreTheSequence) {
  LinearProblem other = problem(4);
  other.batch = 3, other.heads = 6, other.kv_heads = 3, other.value_width = 2;
  for (const LinearProblem& p : {problem(6), other}) {
    if (p.documents) return;
    const auto in = test::random_delta_inputs(p, 1);
    const std::vector<double> empty(test::count(test::delta_state_shape(p)));
    const auto steps = test::run_delta_steps<double>(p, in, empty, 0), whole = test::delta_oracle(p, in);
    EXPECT_TRUE(close(steps.o, whole.o, 1e-12));
    EXPECT_TRUE(close(steps.state, whole.state, 1e-12));
  }
}

TEST_P(DeltaForms, ThreadsAndBatchOrderChangeNoBit) {
  LinearProblem p = problem(80);
  if (p.decays != p.documents) return;
  for (int64_t batch : {1, 3}) {
    p.batch = batch;
    const auto in = test::cast<float>(test::random_delta_inputs(p, 1));
    auto turned = in;  // batch rows 1, 2, .., 0
    for (auto* x : {&turned.q, &turned.k, &turned.v, &turned.d_o, &turned.beta, &turned.log_decay})
      std::rotate(x->begin(), x->begin() + static_cast<int64_t>(x->size()) / batch, x->end());
    for (const FormChoice& form : {chunked_form(32), recurrent_form}) {
      SCOPED_TRACE(name_of(form));
      const auto one = test::run_delta<float>(p, form, in);
      test::expect_all_equal(one, test::run_delta<float>(p, form, in, {true, 2}));
      if (p.documents) continue;  // every row has documents of its own: they cannot be turned
      auto back = test::run_delta<float>(p, form, turned, {true, 3});
      const auto turn_back = [&](auto& x) {
        std::rotate(x.begin(), x.end() - static_cast<int64_t>(x.size()) / batch, x.end());
      };
      for (auto& [name, x] : test::values_of(back)) turn_back(*x);
      for (auto& [name, x] : test::gradients_of(back)) turn_back(*x);
      test::expect_all_equal(one, back);
    }
  }
}

TEST_P(DeltaForms, FloatFollowsDouble) {
  LinearProblem p = problem(300);
  const auto in = test::cast<float>(test::random_delta_inputs(p, 1));
  for (const FormChoice& form : {chunked_form(64), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    auto f = test::run_delta<float>(p, form, in);
    auto d = test::run_delta<double>(p, form, test::cast<double>(in));
    test::expect_values(f, d, 1e-5);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_TRUE(close(*test::gradients_of(f)[i].second, *test::gradients_of(d)[i].second, 1e-4))
          << test::gradients_of(f)[i].first;
  }
}

// q, k, v of all heads in one buffer, as a fused projection leaves them; the gradients likewise.
TEST_P(DeltaForms, ViewsInOneFusedBuffer) {
  LinearProblem p = problem(35);
  p.heads = 4, p.kv_heads = 2, p.value_width = 3;
  const int64_t d = p.map.width, rows = 2 * 35, width = 6 * d + 2 * 3 + 4 * 3 + 3;
  const auto in = test::random_delta_inputs(p, 1);
  std::vector<double> fused(static_cast<size_t>(rows * width), 7), gradients(fused.size(), 7);
  const auto view = [&](std::vector<double>& x, int64_t column, int64_t heads, int64_t inner) {
    const Tensor part = tensor(x, {rows, width}).columns(column, column + heads * inner);
    return part.split_first(2, 35).split_last(heads, inner);
  };
  const auto each = [&](std::vector<double>& wide, int64_t column, int64_t n, auto&& f) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; ++j)
        f(wide[static_cast<size_t>(r * width + column + j)], static_cast<size_t>(r * n + j));
  };
  const int64_t k_at = 1 + 4 * d, v_at = k_at + 2 * d, o_at = v_at + 2 * 3, end = o_at + 4 * 3;
  each(fused, 1, 4 * d, [&](double& x, size_t i) { x = in.q[i]; });
  each(fused, k_at, 2 * d, [&](double& x, size_t i) { x = in.k[i]; });
  each(fused, v_at, 2 * 3, [&](double& x, size_t i) { x = in.v[i]; });
  each(fused, o_at, 4 * 3, [&](double& x, size_t i) { x = in.d_o[i]; });
  const std::vector<double> fused_before = fused;
  const test::Threads threads(1);
  for (const FormChoice& form : {chunked_form(16), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    const auto expected = test::run_delta<double>(p, form, in);
    auto r = expected;
    auto beta_values = in.beta, log_decay = in.log_decay;
    std::vector<int32_t> starts = test::document_starts(p);
    test::run_op([&](Context& ctx) {
      const Decay decay = test::decay_tensors(log_decay, starts, p);
      const Tensor q = view(fused, 1, 4, d), k = view(fused, k_at, 2, d), v = view(fused, v_at, 2, 3);
      const Tensor errors = tensor(r.errors, test::errors_shape(p)),
                   beta = tensor(beta_values, test::beta_shape(p));
      delta_attention_forward(ctx, view(gradients, o_at, 4, 3), errors, q, k, v, beta,
                              delta_settings(p, form), {}, {}, decay);
      delta_attention_backward(ctx, view(gradients, 1, 4, d), view(gradients, k_at, 2, d),
                               view(gradients, v_at, 2, 3), tensor(r.dbeta, test::beta_shape(p)),
                               view(fused, o_at, 4, 3), q, k, v, beta, errors, delta_settings(p, form), decay,
                               p.decays ? tensor(r.dlog_decay, p.decay_shape()) : Tensor());
    });
    each(gradients, 1, 4 * d, [&](double& x, size_t i) { r.dq[i] = x; });
    each(gradients, k_at, 2 * d, [&](double& x, size_t i) { r.dk[i] = x; });
    each(gradients, v_at, 2 * 3, [&](double& x, size_t i) { r.dv[i] = x; });
    each(gradients, o_at, 4 * 3, [&](double& x, size_t i) { r.o[i] = x; });
    test::expect_values(r, expected, 1e-13);
    test::expect_gradients(r, expected, 1e-13);
    EXPECT_EQ(fused, fused_before);
    const auto untouched = [](double& x, size_t) { EXPECT_EQ(x, 7); };
    each(gradients, 0, 1, untouched);
    each(gradients, end, 2, untouched);
  }
}

std::vector<LinearProblem> problems() {
  std::vector<LinearProblem> all;
  for (const FeatureMap& map : test::delta_maps(8, 5))
    for (const LinearProblem& p : test::faded(test::delta_problem(map, 2, 1, 2, 1, 5))) all.push_back(p);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Problems, DeltaForms, ::testing::ValuesIn(problems()));

// 66 chunks: nine segments of states, the last one shorter.
TEST(DeltaAttentionOp, ManySegmentsOfStates) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 5, 1}, psd(4, 1)})
    for (const LinearProblem& p : test::faded(test::delta_problem(map, 1, 4200, 1, 1, 3)))
      expect_equal_forms(p, chunked_form(64), recurrent_form, 1e-10);
}

// Every number of chunks from 1 to 20, so that the last segment has every length.
TEST(DeltaAttentionOp, EveryNumberOfChunksAndSegments) {
  for (int64_t tokens = 1; tokens <= 40; ++tokens) {
    LinearProblem p = test::delta_problem(psd(4, 2), 1, tokens, 1, 1, 3);
    p.decays = true;
    expect_equal_forms(p, chunked_form(2), chunked_form(64), 1e-12);
  }
}

// One head with so many features that they are built in steps and, in the step, cut into blocks; any number
// of threads.
TEST(DeltaAttentionOp, ManyFeaturesOfOneHead) {
  LinearProblem p = test::delta_problem(psd(48, 1), 1, 130, 2, 1, 40);
  p.decays = true;
  expect_equal_forms(p, chunked_form(64), recurrent_form, 1e-11);
  const auto in = test::random_delta_inputs(p, 1);
  const std::vector<double> empty(test::count(test::delta_state_shape(p)));
  auto steps = test::run_delta_steps<double>(p, in, empty, 0);
  EXPECT_TRUE(close(steps.o, test::run_delta<double>(p, recurrent_form, in, test::forward_only).o, 1e-12));
  test::expect_all_equal(steps, test::run_delta_steps<double>(p, in, empty, 0, 3));
}

// What scratch held before is never read: not even NaN gets through.
TEST(DeltaAttentionOp, ScratchNeedsNoValues) {
  const test::Threads threads(1);
  for (const FeatureMap& map :
       {FeatureMap{MapKind::identity, 5, 1}, psd(6, 2), FeatureMap{MapKind::hermitian, 6, 1}})
    for (const FormChoice& form : {chunked_form(16), recurrent_form}) {
      LinearProblem p = test::delta_problem(map, 1, 70, 2, 1, 3);
      p.decays = true;
      auto in = test::random_delta_inputs(p, 1);
      const auto clean = test::run_delta<double>(p, form, in);
      auto r = clean;
      const Tensor q = tensor(in.q, p.q_shape()), k = tensor(in.k, p.k_shape()),
                   v = tensor(in.v, p.v_shape());
      const Tensor errors = tensor(r.errors, test::errors_shape(p)),
                   gate = tensor(in.beta, test::beta_shape(p));
      const Decay decay{tensor(in.log_decay, p.decay_shape()), {}};
      Arena arena(size_t{1} << 22);
      Context ctx{arena};
      const auto poison = [&] {
        const Arena::Scope scope(arena);
        const Tensor all = arena.take("poison", DType::f64, {int64_t{1} << 19});
        std::fill_n(all.as<double>(), all.numel(), double(NAN));
      };
      poison();
      delta_attention_forward(ctx, tensor(r.o, p.o_shape()), errors, q, k, v, gate, delta_settings(p, form),
                              {}, tensor(r.state, test::delta_state_shape(p)), decay);
      poison();
      delta_attention_backward(ctx, tensor(r.dq, p.q_shape()), tensor(r.dk, p.k_shape()),
                               tensor(r.dv, p.v_shape()), tensor(r.dbeta, test::beta_shape(p)),
                               tensor(in.d_o, p.o_shape()), q, k, v, gate, errors, delta_settings(p, form),
                               decay, tensor(r.dlog_decay, p.decay_shape()));
      test::expect_all_equal(r, clean);
    }
}

TEST(DeltaAttentionOp, ScratchGrowsWithTheRootOfTheLength) {
  const auto planned = [](int64_t tokens, bool backward) {
    Arena plan;
    Context ctx{plan};
    const auto null = [](const Shape& shape) { return Tensor(nullptr, DType::f32, shape); };
    const Tensor x = null({1, tokens, 2, 64}), gate = null({1, tokens, 2});
    const DeltaAttention settings{psd(64, 1)};
    delta_attention_forward(ctx, x, x, x, x, x, gate, settings);
    if (backward) delta_attention_backward(ctx, x, x, x, gate, x, x, x, x, gate, x, settings);
    return static_cast<double>(plan.peak());
  };
  EXPECT_EQ(planned(1024, false), planned(65536, false));
  EXPECT_LT(planned(65536, true), 2.1 * planned(16384, true));
}

TEST(DeltaAttentionOp, RefusesWhatItCannotDo) {
  Arena plan;
  Context ctx{plan};
  const auto null = [](const Shape& shape) { return Tensor(nullptr, DType::f32, shape); };
  const Tensor x = null({1, 4, 2, 8}), gate = null({1, 4, 2}), state = null({1, 2, 36, 8});
  const Tensor mass_state = null({1, 2, 36, 9}), one = null({1, 2, 8}), flat = null({1, 2});
  const DeltaAttention good{psd(8, 1)}, recurrent{psd(8, 1), Form::recurrent};
  const auto forward = [&](const DeltaAttention& settings, const Tensor& errors, const Tensor& beta,
                           const Tensor& in, const Tensor& out, const Decay& decay = {}) {
    delta_attention_forward(ctx, x, errors, x, x, x, beta, settings, in, out, decay);
  };
  const auto backward = [&](const Tensor& dq, const Tensor& dbeta, const Decay& decay, const Tensor& dlog) {
    delta_attention_backward(ctx, dq, x, x, dbeta, x, x, x, x, gate, x, good, decay, dlog);
  };
  EXPECT_NO_THROW(forward(good, x, gate, state, state));
  EXPECT_NO_THROW(forward(recurrent, x, gate, {}, state, {gate, {}}));
  EXPECT_THROW(forward({psd(8, 1), Form::quadratic}, x, gate, {}, {}), std::logic_error);
  EXPECT_THROW(forward({psd(8, 1), Form::chunked, 0}, x, gate, {}, {}), std::logic_error);
  EXPECT_THROW(forward({psd(8, 3)}, x, gate, {}, {}), std::logic_error);
  EXPECT_THROW(forward({psd(4, 1)}, x, gate, {}, {}), std::logic_error);
  EXPECT_THROW(forward(good, null({1, 4, 2, 7}), gate, {}, {}), std::logic_error);
  EXPECT_THROW(forward(good, x, null({1, 4, 1}), {}, {}), std::logic_error);
  EXPECT_THROW(forward(good, x, {}, {}, {}), std::logic_error);
  EXPECT_THROW(forward(good, x, gate, mass_state, {}), std::logic_error);
  EXPECT_THROW(forward(good, x, gate, {}, mass_state), std::logic_error);
  EXPECT_NO_THROW(backward(x, gate, {}, {}));
  EXPECT_NO_THROW(backward(x, gate, {gate, {}}, gate));
  EXPECT_THROW(backward(null({1, 4, 1, 8}), gate, {}, {}), std::logic_error);
  EXPECT_THROW(backward(x, null({1, 4, 3}), {}, {}), std::logic_error);
  EXPECT_THROW(backward(x, gate, {gate, {}}, {}), std::logic_error);
  EXPECT_THROW(backward(x, gate, {}, gate), std::logic_error);
  EXPECT_NO_THROW(delta_attention_step(ctx, one, one, one, one, flat, state, psd(8, 1), flat));
  EXPECT_THROW(delta_attention_step(ctx, one, one, one, one, flat, mass_state, psd(8, 1)), std::logic_error);
  EXPECT_THROW(delta_attention_step(ctx, one, one, one, one, gate, state, psd(8, 1)), std::logic_error);
  EXPECT_THROW(delta_attention_step(ctx, x, x, x, x, flat, state, psd(8, 1)), std::logic_error);
}

// Tokens 2^29 and batch rows 2^31 elements apart: offsets above 2^31 in q, k, v, o and their gradients.
TEST(DeltaAttentionOp, LargeStrides) {
  const int64_t stride = int64_t{1} << 29, tokens = 4, d = 4;
  const LinearProblem p = test::delta_problem(psd(d, 1), 2, tokens, 1, 1, d);
  const auto in = test::random_delta_inputs(p, 1);
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
  for (const FormChoice& form : {chunked_form(2), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    const auto expected = test::run_delta<double>(p, form, in);
    auto r = expected;
    auto beta_values = in.beta;
    test::run_op([&](Context& ctx) {
      const Tensor errors = tensor(r.errors, test::errors_shape(p)),
                   beta = tensor(beta_values, test::beta_shape(p));
      delta_attention_forward(ctx, view(4), errors, view(0), view(1), view(2), beta, delta_settings(p, form));
      delta_attention_backward(ctx, view(5), view(6), view(7), tensor(r.dbeta, test::beta_shape(p)), view(3),
                               view(0), view(1), view(2), beta, errors, delta_settings(p, form));
    });
    const std::vector<double>* outputs[] = {&expected.o, &expected.dq, &expected.dk, &expected.dv};
    for (size_t i = 0; i < 4; ++i)
      each(4 + i, [&](double& x, size_t at) { EXPECT_NEAR(x, (*outputs[i])[at], 1e-12) << i << " " << at; });
    EXPECT_TRUE(close(r.dbeta, expected.dbeta, 1e-12));
  }
}

}  // namespace
}  // namespace kata
