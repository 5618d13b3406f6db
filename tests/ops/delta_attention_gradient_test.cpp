// Rungs 1 and 2 of the ladder: each form of the delta rule in double against the recurrence, its complex
// step, and central differences of the form itself, for every map.
#include "ops/delta_attention_support.h"

namespace kata {
namespace {

using test::chunked_form;
using test::FormChoice;
using test::LinearProblem;
using test::random_normal;
using test::recurrent_form;

// One head and several, grouped heads, one token, chunks that do and do not divide T, d_v below and above d.
std::vector<LinearProblem> problems() {
  std::vector<LinearProblem> all;
  for (const FeatureMap& map : test::delta_maps(6, 5)) {
    for (const LinearProblem& p : test::faded(test::delta_problem(map, 1, 9, 1, 1, 3))) all.push_back(p);
    for (const LinearProblem& p : test::faded(test::delta_problem(map, 2, 5, 4, 2, 7))) all.push_back(p);
    LinearProblem one = test::delta_problem(map, 1, 1, 2, 2, 1);
    all.push_back(one);
    one.decays = one.documents = true;
    all.push_back(one);
  }
  // Every other length, by two maps that differ in all their rules.
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 3, 1}, test::psd_sum(4, 2)})
    for (int64_t tokens : {2, 3, 4, 6, 7, 8}) {
      all.push_back(test::delta_problem(map, 1, tokens, 2, 1, 2));
      all.back().decays = true;
    }
  return all;
}

const std::vector<FormChoice> forms = {recurrent_form, chunked_form(1), chunked_form(3), chunked_form(4),
                                       chunked_form(64)};

class DeltaGradient : public ::testing::TestWithParam<LinearProblem> {};

TEST_P(DeltaGradient, ValueIsTheRecurrence) {
  const LinearProblem& p = GetParam();
  const auto in = test::random_delta_inputs(p, 1);
  const auto expected = test::delta_oracle(p, in);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    test::expect_values(test::run_delta<double>(p, form, in, test::forward_only), expected, 1e-12);
  }
}

TEST_P(DeltaGradient, GradientIsTheComplexStep) {
  const LinearProblem& p = GetParam();
  const auto in = test::random_delta_inputs(p, 1);
  const auto expected = test::delta_oracle_gradients(p, in);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    test::expect_gradients(test::run_delta<double>(p, form, in), expected, 1e-12);
  }
}

TEST_P(DeltaGradient, GradientIsTheCentralDifference) {
  const LinearProblem& p = GetParam();
  const auto in = test::random_delta_inputs(p, 1);
  for (const FormChoice& form : {chunked_form(4), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    auto r = test::run_delta<double>(p, form, in);
    const auto f = [&](const std::vector<std::vector<double>>& x) {
      return test::weighted_sum(
          test::run_delta<double>(p, form, {x[0], x[1], x[2], in.d_o, x[3], x[4]}, test::forward_only).o,
          in.d_o);
    };
    for (size_t which = 0; which < (p.decays ? 5 : 4); ++which) {
      const auto [name, gradient] = test::gradients_of(r)[which];
      const auto direction = random_normal(gradient->size(), 9 + which);
      const double slope = test::weighted_sum(*gradient, direction);
      const double norm = std::sqrt(test::weighted_sum(*gradient, *gradient)) + 1e-3;
      const double witness =
          test::central_difference(f, {in.q, in.k, in.v, in.beta, in.log_decay}, which, direction, 1e-6);
      EXPECT_NEAR(slope / norm, witness / norm, 1e-6) << name;
    }
  }
}

// The op is defined for any rows, not only for unit ones, and so is its derivative.
TEST(DeltaGradientOp, RowsOfAnyLength) {
  for (const FeatureMap& map : test::delta_maps(6, 5)) {
    LinearProblem p = test::delta_problem(map, 1, 7, 2, 1, 3);
    p.decays = true;
    auto in = test::random_delta_inputs(p, 1);
    for (size_t i = 0; i < in.q.size(); ++i) in.q[i] *= 0.5 + 0.25 * static_cast<double>(i / 5 % 7);
    for (size_t i = 0; i < in.k.size(); ++i) in.k[i] *= 0.25 + 0.25 * static_cast<double>(i / 5 % 5);
    const auto expected = test::delta_oracle_gradients(p, in);
    for (const FormChoice& form : forms)
      test::expect_gradients(test::run_delta<double>(p, form, in), expected, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, DeltaGradient, ::testing::ValuesIn(problems()));

}  // namespace
}  // namespace kata
