// Algebraic identities that tie the rows of the mixer table to each other (MATH 1, 3, 4, 5): one function by
// two routes, in every form of the additive mixers and of the delta rule.
#include "ops/delta_attention_support.h"
#include "ops/rope.h"

namespace kata {
namespace {

using test::chunked_form;
using test::close;
using test::FormChoice;
using test::LinearProblem;
using test::near;
using test::psd;
using test::psd_sum;
using test::quadratic_form;
using test::random_normal;
using test::recurrent_form;

const std::vector<FormChoice> additive_forms = {quadratic_form, chunked_form(16), recurrent_form};
const std::vector<FormChoice> delta_forms = {chunked_form(16), recurrent_form};

const FeatureMap hermitian8{MapKind::hermitian, 8, 1}, hermitian12{MapKind::hermitian, 12, 1};
const FeatureMap quaternionic16{MapKind::quaternionic, 16, 1};

LinearProblem additive_problem(const FeatureMap& map, Read read = Read::normalised) {
  return {map, read, 2, 50, 2, 1, 5, 1, true, false};
}
LinearProblem delta_problem(const FeatureMap& map) {
  LinearProblem p = test::delta_problem(map, 2, 50, 2, 1, 5);
  p.decays = true;
  return p;
}

// Rows of numbers with `parts` real components each from rows of numbers with `from` components, the new ones
// zero: x_1 .. x_from, 0 .. 0 for each number.
std::vector<double> widen(const std::vector<double>& x, size_t from, size_t parts) {
  std::vector<double> wide;
  for (size_t i = 0; i < x.size(); ++i) {
    wide.push_back(x[i]);
    if (i % from == from - 1) wide.insert(wide.end(), parts - from, 0);
  }
  return wide;
}

// `small` is the map on numbers of `from` components, `large` that on numbers of `parts`: where the further
// components are zero both are one function, in o and in the gradients, whose further components are zero.
// score_ratio: large over small, which a normalised read cancels.
void expect_embedding(const FeatureMap& small, const FeatureMap& large, size_t from, size_t parts,
                      double score_ratio) {
  for (const Read read : {Read::normalised, Read::raw}) {
    const LinearProblem p = additive_problem(small, read);
    LinearProblem wide = additive_problem(large, read);
    if (read == Read::raw) wide.map.scale = small.sigma();
    const auto in = test::random_inputs(p, 1);
    auto wide_in = in;
    wide_in.q = widen(in.q, from, parts), wide_in.k = widen(in.k, from, parts);
    for (const FormChoice& form : additive_forms) {
      SCOPED_TRACE(name_of(form));
      const auto a = test::run_form<double>(p, form, in), b = test::run_form<double>(wide, form, wide_in);
      EXPECT_TRUE(close(b.o, a.o, 1e-10));
      EXPECT_TRUE(near(b.dq, widen(a.dq, from, parts), 1e-10));
      EXPECT_TRUE(near(b.dk, widen(a.dk, from, parts), 1e-10));
      EXPECT_TRUE(near(b.dv, a.dv, 1e-10));
      EXPECT_TRUE(near(b.dlog_decay, a.dlog_decay, 1e-10));
      for (size_t i = 0; i < a.mass.size(); ++i)
        EXPECT_NEAR(b.mass[i] / a.mass[i], score_ratio, 1e-9 * score_ratio);
    }
  }
  const LinearProblem p = delta_problem(small), wide = delta_problem(large);
  const auto in = test::random_delta_inputs(p, 1);
  auto wide_in = in;
  wide_in.q = test::unit_rows(large, widen(in.q, from, parts));
  wide_in.k = test::unit_rows(large, widen(in.k, from, parts));
  EXPECT_TRUE(
      close(wide_in.q, widen(in.q, from, parts), 1e-14));  // unit rows of one are unit rows of the other
  for (const FormChoice& form : delta_forms) {
    SCOPED_TRACE(name_of(form));
    auto a = test::run_delta<double>(p, form, in), b = test::run_delta<double>(wide, form, wide_in);
    a.dq = widen(a.dq, from, parts), a.dk = widen(a.dk, from, parts);
    EXPECT_TRUE(close(b.o, a.o, 1e-12));
    EXPECT_TRUE(close(b.errors, a.errors, 1e-12));
    test::expect_gradients(b, a, 1e-12);
  }
}

// sigma^2 is 1/8 for hermitian of width 8 and 1/4 for psd of width 4.
TEST(MixerIdentity, RealHermitianIsPsdAtHalfTheWidth) {
  expect_embedding(psd(4, 1), hermitian8, 1, 2, 0.5);
  expect_embedding(psd(6, 1), hermitian12, 1, 2, 0.5);
}

// Quaternions a + b i are the complex numbers: <x, y> has no j and no k part.
TEST(MixerIdentity, ComplexQuaternionicIsHermitianAtHalfTheWidth) {
  expect_embedding(hermitian8, quaternionic16, 2, 4, 0.5);
}

TEST(MixerIdentity, RealQuaternionicIsPsdAtAQuarterOfTheWidth) {
  expect_embedding(psd(4, 1), quaternionic16, 1, 4, 0.25);
}

TEST(MixerIdentity, OneGroupOfPsdSumIsPsd) {
  expect_embedding(psd(7, 1), psd_sum(7, 1), 1, 1, 1);
  // The states are the same numbers too, so that one continues the other.
  const LinearProblem p = additive_problem(psd(7, 1)), sum = additive_problem(psd_sum(7, 1));
  const auto in = test::random_inputs(p, 1);
  const std::vector<test::Piece> pieces = {{0, 20, chunked_form(16)}, {20, 50, recurrent_form}};
  const auto a = test::run_pieces<double>(p, pieces, in), b = test::run_pieces<double>(sum, pieces, in);
  EXPECT_TRUE(close(a.second, b.second, 1e-14));
  EXPECT_TRUE(close(test::run_delta<double>(delta_problem(psd(7, 1)), chunked_form(16),
                                            test::random_delta_inputs(delta_problem(psd(7, 1)), 1))
                        .state,
                    test::run_delta<double>(delta_problem(psd_sum(7, 1)), recurrent_form,
                                            test::random_delta_inputs(delta_problem(psd(7, 1)), 1))
                        .state,
                    1e-12));
}

// As many groups as elements: the score is the sum of (x_i y_i)^2, a dot product of squares.
TEST(MixerIdentity, PsdInGroupsOfOneIsTheRawMixerOfSquares) {
  LinearProblem p = additive_problem(psd(6, 6), Read::raw), squared = p;
  squared.map = {MapKind::identity, 6, 1};
  const auto in = test::random_inputs(p, 1);
  auto squares = in;
  for (auto* x : {&squares.q, &squares.k})
    for (double& value : *x) value *= value;
  for (const FormChoice& form : additive_forms)
    EXPECT_TRUE(close(test::run_form<double>(p, form, in).o, test::run_form<double>(squared, form, squares).o,
                      1e-12));
}

// Gate 1: Gated DeltaNet is DeltaNet, and a gated additive mixer the plain one.
TEST(MixerIdentity, ADecayOfOneIsNone) {
  for (const FeatureMap& map : {FeatureMap{MapKind::identity, 6, 1}, psd(6, 1), psd(6, 2), psd_sum(6, 2),
                                hermitian8, quaternionic16}) {
    LinearProblem gated = delta_problem(map), plain = gated;
    plain.decays = false;
    auto in = test::random_delta_inputs(plain, 1);
    auto ones = in;
    ones.log_decay.assign(test::count(gated.decay_shape()), 0);
    for (const FormChoice& form : delta_forms) {
      auto a = test::run_delta<double>(plain, form, in), b = test::run_delta<double>(gated, form, ones);
      b.dlog_decay.clear();
      test::expect_all_equal(a, b);
    }
    const test::LinearInputs<double> sum = {in.q, in.k, in.v, in.d_o, {}};
    auto sum_ones = sum;
    sum_ones.log_decay = ones.log_decay;
    for (const FormChoice& form : additive_forms) {
      const auto a = test::run_form<double>(plain, form, sum),
                 b = test::run_form<double>(gated, form, sum_ones);
      EXPECT_TRUE(close(a.o, b.o, 1e-13));
      EXPECT_TRUE(near(a.dk, b.dk, 1e-13));
    }
  }
}

// With a document at every token the delta rule has nothing to correct: o = kappa(q, k) beta v.
TEST(MixerIdentity, DeltaOnFirstTokensIsAdditive) {
  for (const FeatureMap& map : test::delta_maps(8, 5)) {
    const LinearProblem p = {map, Read::raw, 1, 1, 4, 2, 3};
    LinearProblem sum = p;
    sum.map = unit_map(map);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto in = test::random_delta_inputs(p, 10 * seed);
      test::LinearInputs<double> written = {in.q, in.k, in.v, in.d_o};
      for (size_t i = 0; i < written.v.size(); ++i) written.v[i] *= in.beta[i / 3];
      for (const FormChoice& form : delta_forms)
        EXPECT_TRUE(near(test::run_delta<double>(p, form, in).o,
                         test::run_form<double>(sum, quadratic_form, written).o, 1e-14));
    }
  }
}

// Weak strengths: o / b tends to the additive mixer's with an error of order b.
TEST(MixerIdentity, DeltaOfVanishingStrengthIsAdditive) {
  const LinearProblem p = delta_problem(psd(6, 2));
  LinearProblem sum = p;
  sum.map = unit_map(p.map);
  auto in = test::random_delta_inputs(p, 1);
  const auto additive =
      test::run_form<double>(sum, quadratic_form, {in.q, in.k, in.v, in.d_o, in.log_decay}).o;
  const auto error = [&](double strength) {
    std::fill(in.beta.begin(), in.beta.end(), strength);
    auto o = test::run_delta<double>(p, chunked_form(16), in).o;
    for (double& value : o) value /= strength;
    return test::relative_error(o.data(), additive.data(), o.size());
  };
  EXPECT_LT(error(1e-7), 1e-6);
  EXPECT_NEAR(error(1e-4) / error(1e-5), 10, 0.1);
}

// ---- Rotary positions ----

// x [B, T, H, d] rotated to positions start, start + 1, ..
std::vector<double> rotated(std::vector<double> x, const Shape& shape, const RopeSpec& spec, int64_t start) {
  std::vector<double> table(static_cast<size_t>(shape[1] * spec.pairs() * 2));
  test::run_op([&](Context& ctx) {
    const Tensor t = test::tensor(table, {shape[1], spec.pairs(), 2});
    rope_table(ctx, t, start, spec);
    if (ctx.planning()) return;  // it rotates in place: once
    rope_forward(ctx, test::tensor(x, shape), t, spec);
  });
  return x;
}

// Whether o is the same wherever the sequence begins; it always depends on the distances between the tokens.
// The delta rule's rows are normalised after the rotation.
void expect_relative(const FeatureMap& map, const RopeSpec& spec, bool relative) {
  SCOPED_TRACE(name_of(map.kind));
  LinearProblem p = additive_problem(map);
  p.tokens = 20;
  auto in = test::random_inputs(p, 1);
  auto delta_in = test::random_delta_inputs(test::delta_problem(map, 2, 20, 2, 1, 5), 1);
  LinearProblem delta = p;
  delta.read = Read::raw, delta.decays = false;
  const auto at = [&](int64_t start) {
    auto x = in;
    x.q = rotated(in.q, p.q_shape(), spec, start), x.k = rotated(in.k, p.k_shape(), spec, start);
    return x;
  };
  const auto delta_at = [&](int64_t start) {
    auto x = delta_in;
    x.q = test::unit_rows(map, rotated(delta_in.q, p.q_shape(), spec, start));
    x.k = test::unit_rows(map, rotated(delta_in.k, p.k_shape(), spec, start));
    return x;
  };
  for (const FormChoice& form : additive_forms) {
    const auto near_start = test::run_form<double>(p, form, at(0), test::forward_only).o;
    EXPECT_EQ(bool(close(test::run_form<double>(p, form, at(1000), test::forward_only).o, near_start, 1e-9)),
              relative);
    EXPECT_FALSE(close(test::run_form<double>(p, form, in, test::forward_only).o, near_start, 1e-2));
  }
  for (const FormChoice& form : delta_forms) {
    const auto near_start = test::run_delta<double>(delta, form, delta_at(0), test::forward_only).o;
    EXPECT_EQ(bool(close(test::run_delta<double>(delta, form, delta_at(1000), test::forward_only).o,
                         near_start, 1e-9)),
              relative);
    EXPECT_FALSE(
        close(test::run_delta<double>(delta, form, delta_in, test::forward_only).o, near_start, 1e-2));
  }
}

TEST(MixerIdentity, RotaryPositionsMakeScoresRelative) {
  expect_relative(psd(8, 1), {8, 1, 8}, true);
  expect_relative(psd(8, 2), {8, 1, 8}, true);
  expect_relative(hermitian8, {8, 1, 8}, true);
  expect_relative(psd_sum(8, 2), {8, 2, 4}, true);
  expect_relative({MapKind::lorentz, 8, 1}, {8, 1, 6}, true);  // h turns, |h| and tau stay
}

TEST(MixerIdentity, RotaryPositionsDoNotMakeTheseScoresRelative) {
  expect_relative({MapKind::orthant, 8, 1}, {8, 1, 8}, false);
  expect_relative(psd_sum(8, 2), {8, 1, 8}, false);  // groups of different frequencies
  expect_relative({MapKind::quaternionic, 8, 1}, {8, 1, 8, 10000, 2}, true);
  expect_relative({MapKind::quaternionic, 8, 1}, {8, 1, 8}, false);  // its pairs need one frequency
}

// d = d_v = 1: a score of the psd family is sigma^2 q^2 k^2, so that q and sigma cancel in a normalised read.
TEST(MixerIdentity, OneCoordinateIsAnAverageWeightedBySquares) {
  for (const FeatureMap& map : {psd(1, 1), psd_sum(1, 1)}) {
    LinearProblem p = {map, Read::normalised, 1, 40, 1, 1, 1, 1, true, false};
    const auto in = test::random_inputs(p, 1);
    std::vector<double> expected;
    double numerator = 0, mass = 0;
    for (size_t t = 0; t < 40; ++t) {
      const double keep = std::exp(in.log_decay[t]), weight = in.k[t] * in.k[t];
      numerator = keep * numerator + weight * in.v[t];
      mass = keep * mass + weight;
      expected.push_back(numerator / mass);
    }
    for (const FormChoice& form : additive_forms)
      EXPECT_TRUE(close(test::run_form<double>(p, form, in, test::forward_only).o, expected, 1e-13))
          << name_of(form);
  }
}

}  // namespace
}  // namespace kata
