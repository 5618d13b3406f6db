// Rung 6: what must hold of the function itself, whatever the form.
#include "ops/linear_attention_support.h"

namespace kata {
namespace {

using test::chunked_form;
using test::close;
using test::FormChoice;
using test::LinearInputs;
using test::LinearProblem;
using test::psd;
using test::psd_sum;
using test::quadratic_form;
using test::random_normal;
using test::recurrent_form;

const std::vector<FormChoice> forms = {quadratic_form, chunked_form(16), recurrent_form};

LinearProblem problem(const FeatureMap& map, int64_t tokens, Read read = Read::normalised) {
  return {map, read, 1, tokens, 2, 1, 6};
}

class LinearProperty : public ::testing::TestWithParam<FeatureMap> {};

// A change at token t, however large, leaves every output before t equal to the bit.
TEST_P(LinearProperty, CausalToTheBit) {
  const LinearProblem p = problem(GetParam(), 100);
  const auto in = test::cast<float>(test::random_inputs(p, 1));
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto before = test::run_form<float>(p, form, in, test::forward_only);
    for (int64_t t : {1, 17, 63, 64, 99}) {
      LinearInputs<float> changed = in;
      for (size_t i = static_cast<size_t>(t * p.heads * p.map.width); i < in.q.size(); ++i)
        changed.q[i] = -3e3f;
      for (size_t i = static_cast<size_t>(t * p.map.width); i < in.k.size(); ++i) changed.k[i] = 2e3f;
      for (size_t i = static_cast<size_t>(t * p.value_width); i < in.v.size(); ++i) changed.v[i] = 1e9f;
      const auto after = test::run_form<float>(p, form, changed, test::forward_only);
      const int64_t o_end = t * p.heads * p.value_width, mass_end = t * p.heads;
      EXPECT_TRUE(std::equal(before.o.begin(), before.o.begin() + o_end, after.o.begin())) << t;
      EXPECT_TRUE(std::equal(before.mass.begin(), before.mass.begin() + mass_end, after.mass.begin())) << t;
      EXPECT_NE(before.o[static_cast<size_t>(o_end)], after.o[static_cast<size_t>(o_end)]) << t;
    }
  }
}

// The weights are read off with one-hot values: value column s is token s.
TEST_P(LinearProperty, WeightsAreNonnegativeCausalAndSumToOne) {
  const int64_t tokens = 40;
  LinearProblem p = {GetParam(), Read::normalised, 1, tokens, 1, 1, tokens};
  auto in = test::random_inputs(p, 1);
  std::fill(in.v.begin(), in.v.end(), 0);
  for (size_t s = 0; s < 40; ++s) in.v[s * 40 + s] = 1;
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto r = test::run_form<double>(p, form, in, test::forward_only);
    for (size_t t = 0; t < 40; ++t) {
      double sum = 0;
      for (size_t s = 0; s < 40; ++s) {
        EXPECT_GE(r.o[t * 40 + s], -1e-12);
        if (s > t) {
          EXPECT_EQ(r.o[t * 40 + s], 0);
        }
        sum += r.o[t * 40 + s];
      }
      EXPECT_NEAR(sum, 1, 1e-11);
    }
  }
}

// v = 1 gives 1; v = +1 or -1 by token gives the difference of two masses of the oracle over their sum.
TEST_P(LinearProperty, SignedValuesReadTheMasses) {
  LinearProblem p = {GetParam(), Read::normalised, 1, 90, 2, 2, 1};
  auto in = test::random_inputs(p, 1);
  std::fill(in.v.begin(), in.v.end(), 1);
  const auto ones = test::run_form<float>(p, chunked_form(16), test::cast<float>(in), test::forward_only);
  for (const float o : ones.o) EXPECT_NEAR(o, 1, 1e-3);
  for (size_t i = 0; i < in.v.size(); ++i) in.v[i] = random_normal(1, 100 + i / 2)[0] > 0 ? 1 : -1;
  const auto all = test::run_oracle<double>(p, in.q, in.k, in.v);
  auto halves = in.v;  // 1 for the tokens with +1, 0 for the others: their raw read is the mass of the former
  for (double& v : halves) v = (v + 1) / 2;
  const auto positive = test::run_oracle<double>({p.map, Read::raw, 1, 90, 2, 2, 1}, in.q, in.k, halves);
  for (const FormChoice& form : forms) {
    const auto r = test::run_form<double>(p, form, in, test::forward_only);
    for (size_t i = 0; i < r.o.size(); ++i)
      EXPECT_NEAR(r.o[i], 2 * positive.o[i] / all.mass[i] - 1, 1e-9) << name_of(form) << " " << i;
  }
}

// o_t = (1 - g) r + g v_t with g = A[t,t] / D_t and r the read of the state before t by q_t.
TEST_P(LinearProperty, ConvexGateIdentity) {
  const LinearProblem p = {GetParam(), Read::normalised, 1, 12, 1, 1, 3};
  const auto in = test::random_inputs(p, 1);
  const size_t d = static_cast<size_t>(p.map.width);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto r = test::run_form<double>(p, form, in, test::forward_only);
    for (size_t t = 1; t < 12; ++t) {
      const auto f = oracle::features<double>(p.map, &in.q[t * d]),
                 fk = oracle::features<double>(p.map, &in.k[t * d]);
      double own = 0, before_mass = 0;
      std::vector<double> before(3);
      for (size_t i = 0; i < f.size(); ++i) own += f[i] * fk[i];
      for (size_t s = 0; s < t; ++s) {
        const auto fs = oracle::features<double>(p.map, &in.k[s * d]);
        double score = 0;
        for (size_t i = 0; i < f.size(); ++i) score += f[i] * fs[i];
        before_mass += score;
        for (size_t j = 0; j < 3; ++j) before[j] += score * in.v[s * 3 + j];
      }
      const double gate = own / r.mass[t];
      EXPECT_NEAR(r.mass[t], before_mass + own, 1e-11 * r.mass[t]);
      for (size_t j = 0; j < 3; ++j)
        EXPECT_NEAR(r.o[t * 3 + j], (1 - gate) * before[j] / before_mass + gate * in.v[t * 3 + j], 1e-9);
    }
  }
}

TEST_P(LinearProperty, AllZeroKeysOrQueriesGiveZeroAndNoGradient) {
  const LinearProblem p = problem(GetParam(), 40);
  if (p.map.kind == MapKind::orthant) return;  // its features are never zero
  for (const bool zero_keys : {true, false}) {
    auto in = test::cast<float>(test::random_inputs(p, 1));
    std::fill((zero_keys ? in.k : in.q).begin(), (zero_keys ? in.k : in.q).end(), 0.0f);
    for (const FormChoice& form : forms) {
      SCOPED_TRACE(name_of(form));
      const auto r = test::run_form<float>(p, form, in);
      for (const auto* x : {&r.o, &r.mass, &r.dq, &r.dk, &r.dv})
        for (const float value : *x) EXPECT_EQ(value, 0);
    }
  }
}

// One zero query, and zero keys up to a point: only rows with an empty mass are zero, and pass nothing back.
TEST_P(LinearProperty, ZeroRowsAreZeroAloneAndTheRestIsUntouched) {
  const LinearProblem p = {GetParam(), Read::normalised, 1, 30, 1, 1, 4};
  if (p.map.kind == MapKind::orthant) return;
  auto in = test::random_inputs(p, 1);
  const size_t d = static_cast<size_t>(p.map.width);
  std::fill_n(in.k.begin(), 5 * d, 0);  // tokens 0 .. 4 see zero keys only
  std::fill_n(in.q.begin() + static_cast<int64_t>(20 * d), d, 0);
  const auto expected = test::oracle_gradients(p, in);
  for (const FormChoice& form : forms) {
    SCOPED_TRACE(name_of(form));
    const auto r = test::run_form<double>(p, form, in);
    for (size_t t : {0, 1, 2, 3, 4, 20}) {
      for (size_t j = 0; j < 4; ++j) EXPECT_EQ(r.o[t * 4 + j], 0);
      for (size_t j = 0; j < d; ++j) EXPECT_EQ(r.dq[t * d + j], 0);
    }
    EXPECT_TRUE(close(r.o, test::run_oracle<double>(p, in.q, in.k, in.v).o, 1e-11));
    // h = 0 is a kink of lorentz: there the gradient of a zero key is the stated value, not the complex step.
    if (p.map.kind == MapKind::lorentz) continue;
    EXPECT_TRUE(close(r.dq, expected.dq, 1e-11));
    EXPECT_TRUE(close(r.dk, expected.dk, 1e-11));
    EXPECT_TRUE(close(r.dv, expected.dv, 1e-11));
  }
}

TEST_P(LinearProperty, TinyAndHugeMagnitudesStayFinite) {
  for (const double scale : {1e-30, 1e-12, 1e-3, 1e3, 1e6}) {
    LinearProblem p = problem(GetParam(), 70);
    if (p.map.kind == MapKind::lorentz && scale > 1e3) continue;  // a sixth power: 1e36 needs more than float
    p.scale = scale;
    const auto in = test::cast<float>(test::random_inputs(p, 1));
    for (const FormChoice& form : forms) {
      const auto r = test::run_form<float>(p, form, in);
      for (const auto* x : {&r.o, &r.mass, &r.dq, &r.dk, &r.dv})
        for (const float value : *x) ASSERT_TRUE(std::isfinite(value)) << name_of(form) << " scale " << scale;
    }
  }
}

TEST_P(LinearProperty, ChunkSizeChangesNothing) {
  const LinearProblem p = problem(GetParam(), 75);
  const auto in = test::random_inputs(p, 1);
  const auto one = test::run_form<double>(p, chunked_form(1), in);
  for (int64_t chunk : {2, 3, 8, 33, 64, 75, 500}) {
    SCOPED_TRACE(chunk);
    const auto other = test::run_form<double>(p, chunked_form(chunk), in);
    EXPECT_TRUE(close(one.o, other.o, 1e-10));
    EXPECT_TRUE(close(one.dq, other.dq, 1e-10));
    EXPECT_TRUE(close(one.dk, other.dk, 1e-10));
    EXPECT_TRUE(close(one.dv, other.dv, 1e-10));
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, LinearProperty,
                         ::testing::Values(FeatureMap{MapKind::orthant, 7, 1},
                                           FeatureMap{MapKind::lorentz, 7, 1}, psd(7, 1), psd(8, 2),
                                           psd(4, 4), psd_sum(8, 1), psd_sum(8, 2), psd_sum(8, 4)));

// ---- Isometries of the maps (MATH 7): what may be done to q and k alike without changing o ----

// A random orthogonal matrix [n, n] by Gram-Schmidt.
std::vector<double> orthogonal(size_t n, uint64_t seed) {
  std::vector<double> u = random_normal(n * n, seed);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) {
      double dot = 0;
      for (size_t j = 0; j < n; ++j) dot += u[i * n + j] * u[k * n + j];
      for (size_t j = 0; j < n; ++j) u[i * n + j] -= dot * u[k * n + j];
    }
    double squares = 0;
    for (size_t j = 0; j < n; ++j) squares += u[i * n + j] * u[i * n + j];
    for (size_t j = 0; j < n; ++j) u[i * n + j] /= std::sqrt(squares);
  }
  return u;
}

// Every row of x [rows, width] with columns [at, at + n) multiplied by u [n, n].
void turn(std::vector<double>& x, size_t width, size_t at, const std::vector<double>& u, size_t n) {
  for (size_t r = 0; r < x.size(); r += width) {
    std::vector<double> y(n);
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) y[i] += u[i * n + j] * x[r + at + j];
    std::copy(y.begin(), y.end(), x.begin() + static_cast<int64_t>(r + at));
  }
}

// Turns columns [at_i, at_i + n) by matrix i in q and k, and compares all forms; the same o is expected, or
// not.
void expect_isometry(const FeatureMap& map, const std::vector<std::vector<double>>& turns, size_t n,
                     bool invariant) {
  const LinearProblem p = problem(map, 20);
  const auto in = test::random_inputs(p, 1);
  auto turned = in;
  for (size_t i = 0; i < turns.size(); ++i) {
    turn(turned.q, static_cast<size_t>(map.width), i * n, turns[i], n);
    turn(turned.k, static_cast<size_t>(map.width), i * n, turns[i], n);
  }
  for (const FormChoice& form : forms) {
    const auto a = test::run_form<double>(p, form, in, test::forward_only);
    const auto b = test::run_form<double>(p, form, turned, test::forward_only);
    EXPECT_EQ(bool(close(a.o, b.o, 1e-10)), invariant) << name_of(form);
  }
}

TEST(LinearIsometry, PsdUnderOrthogonalMapsOfTheWholeOrOfEachGroup) {
  expect_isometry(psd(8, 1), {orthogonal(8, 1)}, 8, true);
  expect_isometry(psd(8, 2), {orthogonal(4, 1), orthogonal(4, 2)}, 4, true);
  expect_isometry(psd(8, 2), {orthogonal(8, 1)}, 8, false);
}

TEST(LinearIsometry, PsdSumUnderOneMapOfAllGroups) {
  const auto u = orthogonal(4, 1);
  expect_isometry(psd_sum(8, 2), {u, u}, 4, true);
  expect_isometry(psd_sum(8, 2), {u, orthogonal(4, 2)}, 4, false);
}

TEST(LinearIsometry, LorentzUnderOrthogonalMapsOfH) {
  expect_isometry({MapKind::lorentz, 8, 1}, {orthogonal(7, 1)}, 7, true);
  expect_isometry({MapKind::lorentz, 8, 1}, {orthogonal(8, 1)}, 8, false);
}

TEST(LinearIsometry, OrthantUnderPermutations) {
  std::vector<double> shift(64);
  for (size_t i = 0; i < 8; ++i) shift[i * 8 + (i + 3) % 8] = 1;
  expect_isometry({MapKind::orthant, 8, 1}, {shift}, 8, true);
  expect_isometry({MapKind::orthant, 8, 1}, {orthogonal(8, 1)}, 8, false);
}

// psd family: a factor on every query (its own for each) leaves o; so does one factor on all keys.
TEST(LinearScale, PsdFamilyIgnoresTheScaleOfAQuery) {
  for (const FeatureMap& map : {psd(8, 1), psd(8, 2), psd_sum(8, 2)}) {
    const LinearProblem p = problem(map, 40);
    const auto in = test::random_inputs(p, 1);
    auto scaled = in;
    for (size_t i = 0; i < scaled.q.size(); ++i) scaled.q[i] *= 0.5 + static_cast<double>(i / 8 % 7);
    for (double& k : scaled.k) k *= 3;
    for (const FormChoice& form : forms) {
      const auto a = test::run_form<double>(p, form, in, test::forward_only);
      const auto b = test::run_form<double>(p, form, scaled, test::forward_only);
      EXPECT_TRUE(close(a.o, b.o, 1e-11)) << name_of(form);
    }
  }
}

}  // namespace
}  // namespace kata
