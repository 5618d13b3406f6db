// Rung 6 for the delta rule: what must hold of the function itself, whatever the form.
#include "ops/delta_attention_support.h"

namespace kata {
namespace {

using test::chunked_form;
using test::close;
using test::FormChoice;
using test::LinearProblem;
using test::psd;
using test::random_normal;
using test::recurrent_form;

const std::vector<FormChoice> forms = {chunked_form(16), chunked_form(64), recurrent_form};

class DeltaProperty : public ::testing::TestWithParam<FeatureMap> {
 protected:
  LinearProblem problem(int64_t tokens, bool decays = false) const {
    LinearProblem p = test::delta_problem(GetParam(), 1, tokens, 2, 1, 6);
    p.decays = decays;
    return p;
  }
};

// A change at token t, however large, leaves every output before t equal to the bit.
TEST_P(DeltaProperty, CausalToTheBit) {
  const LinearProblem p = problem(100, true);
  const auto in = test::cast<float>(test::random_delta_inputs(p, 1));
  const auto other = test::cast<float>(test::random_delta_inputs(p, 100));
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto before = test::run_delta<float>(p, form, in, test::forward_only);
    for (int64_t t : {1, 17, 63, 64, 99}) {
      auto changed = in;
      const auto change = [&](std::vector<float>& x, const std::vector<float>& to, float scale) {
        const size_t row = x.size() / 100;
        for (size_t i = static_cast<size_t>(t) * row; i < x.size(); ++i) x[i] = scale * to[i];
      };
      change(changed.q, other.q, 1), change(changed.k, other.k, 1), change(changed.v, other.v, 1e9f);
      change(changed.beta, other.beta, 1), change(changed.log_decay, other.log_decay, 3);
      const auto after = test::run_delta<float>(p, form, changed, test::forward_only);
      const int64_t o_end = t * p.heads * p.value_width, e_end = t * p.value_width;
      EXPECT_TRUE(std::equal(before.o.begin(), before.o.begin() + o_end, after.o.begin())) << t;
      EXPECT_TRUE(std::equal(before.errors.begin(), before.errors.begin() + e_end, after.errors.begin()))
          << t;
      EXPECT_NE(before.o[static_cast<size_t>(o_end)], after.o[static_cast<size_t>(o_end)]) << t;
    }
  }
}

TEST_P(DeltaProperty, NoDecayIsADecayOfZero) {
  const LinearProblem plain = problem(70), decaying = problem(70, true);
  const auto in = test::random_delta_inputs(plain, 1);
  auto zero = in;
  zero.log_decay.assign(70, 0);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    auto a = test::run_delta<double>(plain, form, in), b = test::run_delta<double>(decaying, form, zero);
    b.dlog_decay.clear();  // the one without a decay has none
    test::expect_all_equal(a, b);
  }
}

// A zero key writes nothing and erases nothing; its error is its value.
TEST_P(DeltaProperty, ZeroKeysAndZeroStrengthsAreNoWrites) {
  const LinearProblem p = problem(40, true);
  const size_t d = static_cast<size_t>(p.map.width), dv = 6;
  auto in = test::random_delta_inputs(p, 1);
  for (const size_t t : {0, 1, 7, 8, 20}) std::fill_n(in.k.begin() + static_cast<int64_t>(t * d), d, 0);
  auto weak = in;  // the same tokens with a key and no strength
  weak.k = test::random_delta_inputs(p, 1).k;
  for (const size_t t : {0, 1, 7, 8, 20}) weak.beta[t] = 0;
  const auto expected = test::delta_oracle_gradients(p, in);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    auto r = test::run_delta<double>(p, form, in);
    test::expect_values(r, test::delta_oracle(p, in), 1e-12);
    test::expect_gradients(r, expected, 1e-12);
    EXPECT_TRUE(close(test::run_delta<double>(p, form, weak, test::forward_only).o, r.o, 1e-13));
    for (const size_t t : {0, 1, 7, 8, 20})
      for (size_t j = 0; j < dv; ++j) EXPECT_EQ(r.errors[t * dv + j], in.v[t * dv + j]);
    auto none = in;
    std::fill(none.k.begin(), none.k.end(), 0);
    auto nothing = test::run_delta<double>(p, form, none);
    for (const auto* x : {&nothing.o, &nothing.state, &nothing.dq, &nothing.dv, &nothing.dlog_decay})
      for (const double value : *x) EXPECT_EQ(value, 0);
    EXPECT_EQ(nothing.errors, none.v);
  }
}

// Documents in one row are the documents apart.
TEST_P(DeltaProperty, DocumentsAreReadApart) {
  LinearProblem p = problem(150, true);
  p.documents = true;
  const auto in = test::random_delta_inputs(p, 1);
  const std::vector<int32_t> starts = test::document_starts(p);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    auto joined = test::run_delta<double>(p, form, in);
    for (int64_t begin = 0, end; begin < p.tokens; begin = end) {
      for (end = begin + 1; end < p.tokens && starts[static_cast<size_t>(end)] == begin;) ++end;
      LinearProblem alone = p;
      alone.documents = false;
      alone.tokens = end - begin;
      auto apart = test::run_delta<double>(alone, form, test::cut_tokens(p, in, begin, end));
      auto cut = joined;
      for (auto& [name, x] : test::values_of(cut))
        if (x != &cut.state) *x = test::cut_tokens(p, *x, begin, end);
      for (auto& [name, x] : test::gradients_of(cut)) *x = test::cut_tokens(p, *x, begin, end);
      if (end < p.tokens) cut.state = apart.state;
      test::expect_values(cut, apart, 1e-12);
      test::expect_gradients(cut, apart, 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, DeltaProperty, ::testing::ValuesIn(test::delta_maps(8, 7)));

// d = d_v = 1: S_t = a_t S_{t-1} (1 - beta_t k_t^2) + beta_t k_t v_t, o_t = q_t S_t; psd has k^2 and q^2 for
// them.
TEST(DeltaAttentionOp, OneDimensionIsAScalarRecurrence) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 1, 1}, psd(1, 1)}) {
    LinearProblem p = test::delta_problem(map, 1, 200, 1, 1, 1);
    p.decays = true;
    auto in = test::random_delta_inputs(p, 1);
    for (double& k : in.k) k *= 0.9;
    double s = 0;
    std::vector<double> o, e;
    for (size_t t = 0; t < 200; ++t) {
      const double k = map.first_order() ? in.k[t] : in.k[t] * in.k[t];
      const double q = map.first_order() ? in.q[t] : in.q[t] * in.q[t];
      s *= std::exp(in.log_decay[t]);
      e.push_back(in.v[t] - k * s);
      s = s * (1 - in.beta[t] * k * k) + in.beta[t] * k * in.v[t];
      o.push_back(q * s);
    }
    for (const FormChoice& form : forms) {
      const auto r = test::run_delta<double>(p, form, in, test::forward_only);
      EXPECT_TRUE(close(r.o, o, 1e-13)) << name_of(form);
      EXPECT_TRUE(close(r.errors, e, 1e-13)) << name_of(form);
      EXPECT_NEAR(r.state[0], s, 1e-13) << name_of(form);
    }
  }
}

}  // namespace
}  // namespace kata
