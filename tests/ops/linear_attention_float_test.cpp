// Rung 3: each form in float against double on the same inputs, row by row with the conditioning rule of
// MATH 2.
#include "ops/linear_attention_support.h"

namespace kata {
namespace {

using test::chunked_form;
using test::FormChoice;
using test::LinearInputs;
using test::LinearProblem;
using test::psd;
using test::psd_sum;
using test::quadratic_form;
using test::recurrent_form;

constexpr double eps = 1.1920929e-7;  // of float

double norm(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += x[j] * x[j];
  return std::sqrt(sum);
}

// |q_t| or |f(q_t)| per row: for the psd family MATH's sigma |x|^2, for the others the length of the
// features.
std::vector<double> row_sizes(const FeatureMap& map, const std::vector<double>& x) {
  std::vector<double> sizes;
  for (size_t r = 0; r < x.size(); r += static_cast<size_t>(map.width)) {
    const double length = norm(&x[r], map.width);
    const auto f = oracle::features<double>(map, &x[r]);
    sizes.push_back(map.first_order() ? norm(f.data(), static_cast<int64_t>(f.size()))
                                      : oracle::feature_sigma(map) * length * length);
  }
  return sizes;
}

// Per row (b, t, h): the sum over visible keys of |f(q)| |f(k)|, decayed, an upper bound of D.
std::vector<double> bounds(const LinearProblem& p, const LinearInputs<double>& in) {
  const auto q = row_sizes(p.map, in.q), k = row_sizes(p.map, in.k);
  const std::vector<int32_t> starts = test::document_starts(p);
  std::vector<double> bound(q.size());
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h) {
      double sum = 0;
      for (int64_t t = 0; t < p.tokens; ++t) {
        const int64_t kv = h / (p.heads / p.kv_heads), row = (b * p.tokens + t) * p.heads + h;
        const auto key = static_cast<size_t>((b * p.tokens + t) * p.kv_heads + kv);
        if (p.documents && starts[static_cast<size_t>(b * p.tokens + t)] == t) sum = 0;
        sum = k[key] + (p.decays ? std::exp(in.log_decay[key]) : 1) * sum;
        bound[static_cast<size_t>(row)] = q[static_cast<size_t>(row)] * sum;
      }
    }
  return bound;
}

struct Rows {
  int64_t all = 0, left_out = 0;
  double worst = 0;  // largest error over its tolerance
};

class LinearFloat : public ::testing::TestWithParam<LinearProblem> {};

// |o_float - o_double| <= 16 eps cond_t times the size of what is averaged: sum_s P |v_s| in each column.
Rows compare_values(const LinearProblem& p, const FormChoice& form, const LinearInputs<float>& in) {
  const auto wide = test::cast<double>(in);
  const auto f = test::run_form<float>(p, form, in, test::forward_only);
  const auto d = test::run_form<double>(p, form, wide, test::forward_only);
  auto positive = wide;
  for (double& v : positive.v) v = std::abs(v);
  const auto hull = test::run_form<double>(p, form, positive, test::forward_only);
  const auto bound = bounds(p, wide);
  Rows rows;
  for (size_t r = 0; r < bound.size(); ++r) {
    const double cond = p.normalised() ? bound[r] / d.mass[r] : 1;
    ++rows.all;
    if (!(eps * cond <= 1e-2)) {
      ++rows.left_out;
      continue;
    }
    const size_t width = static_cast<size_t>(p.value_width);
    for (size_t i = r * width; i < (r + 1) * width; ++i) {
      const double size = p.normalised() ? hull.o[i] : 4 * bound[r];  // |v| up to about 4
      rows.worst = std::max(rows.worst, std::abs(f.o[i] - d.o[i]) / (16 * eps * cond * size));
      if (!std::isfinite(f.o[i])) rows.worst = INFINITY;
    }
  }
  return rows;
}

TEST_P(LinearFloat, ValuesFollowTheConditioningRule) {
  const LinearProblem& p = GetParam();
  const auto in = test::cast<float>(test::random_inputs(p, 1));
  for (const FormChoice& form : {quadratic_form, chunked_form(64), recurrent_form}) {
    const Rows rows = compare_values(p, form, in);
    EXPECT_LE(rows.worst, 1) << name_of(form);
    EXPECT_LT(static_cast<double>(rows.left_out), 0.01 * static_cast<double>(rows.all)) << name_of(form);
    std::cout << name_of(form) << ": worst row at " << rows.worst << " of its tolerance, " << rows.left_out
              << " of " << rows.all << " rows left out\n";
  }
}

// Rows that are nearly orthogonal to all keys get no gradient here, the others bound the error of the whole.
TEST_P(LinearFloat, GradientsWhereTheReadIsWellConditioned) {
  const LinearProblem& p = GetParam();
  auto in = test::cast<float>(test::random_inputs(p, 1));
  const auto wide = test::cast<double>(in);
  const auto bound = bounds(p, wide);
  const auto mass = test::run_form<double>(p, quadratic_form, wide, test::forward_only).mass;
  const double limit = 16 * static_cast<double>(p.map.width);  // cond is about d on random data
  int64_t left_out = 0;
  for (size_t r = 0; r < mass.size(); ++r) {
    if (bound[r] <= limit * mass[r]) continue;
    ++left_out;
    for (int64_t j = 0; j < p.value_width; ++j)
      in.d_o[r * static_cast<size_t>(p.value_width) + static_cast<size_t>(j)] = 0;
  }
  EXPECT_LT(static_cast<double>(left_out), 0.05 * static_cast<double>(bound.size()));
  for (const FormChoice& form : {quadratic_form, chunked_form(64), recurrent_form}) {
    SCOPED_TRACE(name_of(form));
    const auto f = test::run_form<float>(p, form, in);
    const auto d = test::run_form<double>(p, form, test::cast<double>(in));
    EXPECT_TRUE(test::close(f.dq, d.dq, eps * limit));
    EXPECT_TRUE(test::close(f.dk, d.dk, eps * limit));
    EXPECT_TRUE(test::close(f.dv, d.dv, eps * limit));
    EXPECT_TRUE(test::close(f.dlog_decay, d.dlog_decay, eps * limit));
  }
}

std::vector<LinearProblem> problems() {
  const Read n = Read::normalised, r = Read::raw;
  return {{{MapKind::identity, 24, 1}, r, 1, 300, 2, 1, 16},
          {{MapKind::orthant, 32, 1}, n, 2, 200, 2, 2, 16},
          {{MapKind::lorentz, 33, 1}, n, 1, 300, 2, 2, 32},
          {psd(16, 1), n, 2, 300, 2, 1, 32},
          {psd(32, 1), n, 1, 300, 1, 1, 16},
          {psd(32, 2), n, 1, 300, 2, 2, 33},
          {psd(48, 1), n, 1, 200, 1, 1, 40},
          {psd(16, 16), n, 1, 300, 1, 1, 8},
          {psd(32, 4), r, 1, 300, 2, 2, 16},
          {psd_sum(32, 2), n, 1, 300, 2, 1, 16},
          {psd(16, 1), n, 1, 300, 1, 1, 8, 1e-3},
          {psd(16, 1), n, 1, 300, 1, 1, 8, 1e6},
          {psd_sum(16, 2), n, 1, 300, 1, 1, 8, 1e6},
          {{MapKind::orthant, 16, 1}, n, 1, 300, 1, 1, 8, 1e6},
          {{MapKind::hermitian, 32, 1}, n, 1, 300, 2, 1, 16},
          {{MapKind::quaternionic, 32, 1}, n, 1, 300, 2, 1, 16},
          {psd(16, 1), n, 1, 300, 2, 1, 16, 1, true, false},
          {psd(16, 2), n, 1, 300, 2, 1, 16, 1, false, true},
          {psd_sum(16, 2), n, 1, 300, 2, 1, 16, 1, true, true},
          {{MapKind::identity, 24, 1}, r, 1, 300, 2, 1, 16, 1, true, true},
          {{MapKind::hermitian, 16, 1}, r, 1, 300, 2, 2, 16, 1, true, false}};
}

INSTANTIATE_TEST_SUITE_P(Problems, LinearFloat, ::testing::ValuesIn(problems()));

}  // namespace
}  // namespace kata
