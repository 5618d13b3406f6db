// Rungs 1 and 2 of the ladder: each form in double against the recurrence, its complex step, and central
// differences of the form itself, for every map and read.
#include "ops/linear_attention_support.h"

namespace kata {
namespace {

using test::chunked_form;
using test::close;
using test::FormChoice;
using test::LinearInputs;
using test::LinearProblem;
using test::near;
using test::quadratic_form;
using test::random_normal;
using test::recurrent_form;

// One head and several, grouped heads, one token, chunks that do and do not divide T, d_v below and above d.
std::vector<LinearProblem> problems() {
  std::vector<LinearProblem> all;
  for (const auto& [map, read] : test::maps_and_reads(6, 5)) {
    for (const LinearProblem& p : test::faded({map, read, 1, 9, 1, 1, 3})) all.push_back(p);
    for (const LinearProblem& p : test::faded({map, read, 2, 5, 4, 2, 7})) all.push_back(p);
    all.push_back({map, read, 1, 1, 2, 2, 1});
    all.push_back({map, read, 1, 1, 2, 2, 1, 1, true, true});
  }
  return all;
}

const std::vector<FormChoice> forms = {quadratic_form,  recurrent_form,  chunked_form(1),
                                       chunked_form(3), chunked_form(4), chunked_form(64)};

class LinearGradient : public ::testing::TestWithParam<LinearProblem> {};

TEST_P(LinearGradient, ValueIsTheRecurrence) {
  const LinearProblem& p = GetParam();
  const auto in = test::random_inputs(p, 1);
  const auto expected = test::run_oracle(p, in);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto r = test::run_form<double>(p, form, in, test::forward_only);
    EXPECT_TRUE(close(r.o, expected.o, 1e-11));
    EXPECT_TRUE(close(r.mass, expected.mass, 1e-12));
  }
}

TEST_P(LinearGradient, GradientIsTheComplexStep) {
  const LinearProblem& p = GetParam();
  const auto in = test::random_inputs(p, 1);
  const auto expected = test::oracle_gradients(p, in);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto r = test::run_form<double>(p, form, in);
    EXPECT_TRUE(near(r.dq, expected.dq, 3e-11));
    EXPECT_TRUE(near(r.dk, expected.dk, 3e-11));
    EXPECT_TRUE(near(r.dv, expected.dv, 3e-11));
    EXPECT_TRUE(near(r.dlog_decay, expected.dlog_decay, 3e-11));
  }
}

TEST_P(LinearGradient, GradientIsTheCentralDifference) {
  const LinearProblem& p = GetParam();
  const auto in = test::random_inputs(p, 1);
  for (const FormChoice& form : {quadratic_form, chunked_form(4), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    const auto r = test::run_form<double>(p, form, in);
    const auto f = [&](const std::vector<std::vector<double>>& x) {
      return test::weighted_sum(
          test::run_form<double>(p, form, {x[0], x[1], x[2], in.d_o, x[3]}, test::forward_only).o, in.d_o);
    };
    const std::vector<double>* gradients[] = {&r.dq, &r.dk, &r.dv, &r.dlog_decay};
    for (size_t which = 0; which < (p.decays ? 4 : 3); ++which) {
      const auto direction = random_normal(gradients[which]->size(), 9 + which);
      const double slope = test::weighted_sum(*gradients[which], direction);
      const double norm = std::sqrt(test::weighted_sum(*gradients[which], *gradients[which])) + 1e-3;
      const double witness =
          test::central_difference(f, {in.q, in.k, in.v, in.log_decay}, which, direction, 1e-6);
      EXPECT_NEAR(slope / norm, witness / norm, 1e-5) << "input " << which;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, LinearGradient, ::testing::ValuesIn(problems()));

}  // namespace
}  // namespace kata
