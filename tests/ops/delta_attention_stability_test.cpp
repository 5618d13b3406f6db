// The delta rule on keys that come back: the last value is what counts, and nothing grows, in float too.
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

const FeatureMap identity8{MapKind::identity, 8, 1};

// `n` keys whose features are orthogonal: in each group the rows of an orthogonal matrix.
std::vector<std::vector<double>> orthogonal_keys(const FeatureMap& map, size_t n) {
  const size_t groups = static_cast<size_t>(map.groups), part = static_cast<size_t>(map.part());
  std::vector<std::vector<double>> keys(n);
  for (size_t g = 0; g < groups; ++g) {
    std::vector<std::vector<double>> rows;
    for (size_t i = 0; i < n; ++i) {
      std::vector<double> x = random_normal(part, 50 + g * n + i);
      for (int twice = 0; twice < 2; ++twice)
        for (const auto& y : rows) {
          const double dot = test::weighted_sum(x, y);
          for (size_t j = 0; j < part; ++j) x[j] -= dot * y[j];
        }
      const double length = std::sqrt(test::weighted_sum(x, x));
      for (double& value : x) value /= length;
      rows.push_back(x);
      keys[i].insert(keys[i].end(), x.begin(), x.end());
    }
  }
  for (auto& key : keys) key = test::unit_rows(map, key);
  return keys;
}

// Token t has key t % n and asks for the key `ago` tokens back; beta is 1.
test::DeltaInputs<double> cycling_inputs(const LinearProblem& p, size_t n, size_t ago) {
  const auto keys = orthogonal_keys(p.map, n);
  test::DeltaInputs<double> in;
  for (size_t t = 0; t < static_cast<size_t>(p.tokens); ++t) {
    const auto &key = keys[t % n], &query = keys[(t + n - ago % n) % n];
    in.k.insert(in.k.end(), key.begin(), key.end());
    in.q.insert(in.q.end(), query.begin(), query.end());
  }
  in.v = random_normal(test::count(p.v_shape()), 1);
  in.d_o = random_normal(test::count(p.o_shape()), 2);
  in.beta.assign(static_cast<size_t>(p.tokens), 1);
  return in;
}

class DeltaOverwrite : public ::testing::TestWithParam<FeatureMap> {};

// 10,000 writes; a key's last value comes back, however often it was written before: one key over and over
// (within chunks and across), and keys that come back in every chunk or only in later ones.
TEST_P(DeltaOverwrite, TheLastValueComesBack) {
  const LinearProblem p = test::delta_problem(GetParam(), 1, 10000, 1, 1, 4);
  const struct {
    size_t keys, ago;
    FormChoice form;
  } cases[] = {{1, 0, chunked_form(64)}, {1, 0, recurrent_form}, {5, 3, chunked_form(64)},
               {5, 3, chunked_form(4)},  {5, 3, recurrent_form}, {5, 0, chunked_form(4)}};
  for (const auto& c : cases) {
    SCOPED_TRACE(name_of(c.form) + ", keys " + std::to_string(c.keys));
    const auto in = cycling_inputs(p, c.keys, c.ago);
    const auto worst = [&](const auto& o) {
      double error = 0;
      for (size_t i = c.ago * 4; i < o.size(); ++i) {
        const double difference = std::abs(static_cast<double>(o[i]) - in.v[i - c.ago * 4]);
        error = difference <= error ? error : difference;  // NaN stays
      }
      return error;
    };
    EXPECT_LT(worst(test::run_delta<float>(p, c.form, test::cast<float>(in), test::forward_only).o), 3e-5);
    EXPECT_LT(worst(test::run_delta<double>(p, c.form, in, test::forward_only).o), 1e-12);
  }
}

// Keys that do not meet erase nothing: the additive mixer with v scaled by beta, decay and all.
TEST_P(DeltaOverwrite, OrthogonalKeysMakeItAdditive) {
  LinearProblem p = test::delta_problem(GetParam(), 1, GetParam().part(), 1, 1, 3);
  for (const bool decays : {false, true}) {
    p.decays = decays;
    auto in = cycling_inputs(p, static_cast<size_t>(p.tokens), 0);
    in.q = test::unit_rows(p.map, random_normal(in.q.size(), 3));
    in.beta = test::random_betas(in.beta.size(), 4);
    if (decays) in.log_decay = test::random_decays(in.beta.size(), 5);
    LinearProblem additive = p;
    additive.map = unit_map(p.map);
    test::LinearInputs<double> written = {in.q, in.k, in.v, in.d_o, in.log_decay};
    for (size_t i = 0; i < in.v.size(); ++i) written.v[i] *= in.beta[i / 3];
    for (const FormChoice& form : {chunked_form(3), chunked_form(64), recurrent_form}) {
      const auto delta = test::run_delta<double>(p, form, in);
      const auto sum = test::run_form<double>(additive, form, written);
      EXPECT_TRUE(close(delta.errors, in.v, 1e-13));
      EXPECT_TRUE(close(delta.o, sum.o, 1e-13));
      EXPECT_TRUE(test::near(delta.dq, sum.dq, 1e-13));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, DeltaOverwrite, ::testing::Values(identity8, psd(8, 1), psd(16, 2)));

// What made the reference implementation diverge, and random keys for comparison.
enum class Keys { random, one, repeated_through_a_chunk, nearly_parallel };
struct Hard {
  FeatureMap map;
  Keys keys;
  bool full_strength;  // beta = 1, else anything
};
void PrintTo(const Hard& h, std::ostream* out) {
  PrintTo(h.map, out);
  *out << " keys " << static_cast<int>(h.keys) << (h.full_strength ? " beta 1" : "");
}

class DeltaStability : public ::testing::TestWithParam<Hard> {
 protected:
  // Nearly parallel: at a distance of 1e-3 from one key, so that two of them have a cosine near 1 - 1e-6.
  test::DeltaInputs<float> inputs(const LinearProblem& p) const {
    const Hard& hard = GetParam();
    auto in = test::random_delta_inputs(p, 1);
    const size_t d = static_cast<size_t>(p.map.width);
    const std::vector<double> base = random_normal(d, 77), random = random_normal(in.k.size(), 78);
    const double length = std::sqrt(test::weighted_sum(base, base)), step = 1e-3 / std::sqrt(double(d));
    for (size_t i = 0; i < in.k.size(); ++i) {
      if (hard.keys == Keys::one) in.k[i] = base[i % d];
      if (hard.keys == Keys::repeated_through_a_chunk) in.k[i] = random[i / d / 64 * d + i % d];
      if (hard.keys == Keys::nearly_parallel) in.k[i] = base[i % d] / length + step * random[i];
    }
    in.k = test::unit_rows(p.map, in.k);
    if (hard.full_strength) std::fill(in.beta.begin(), in.beta.end(), 1);
    return test::cast<float>(in);
  }
};

// 4,096 tokens, 16 times over.
TEST_P(DeltaStability, LongSequencesInFloat) {
  LinearProblem p = test::delta_problem(GetParam().map, 1, 4096, 1, 1, 4);
  auto in = inputs(p);
  p.tokens *= 16;
  for (auto* x : {&in.q, &in.k, &in.v, &in.beta}) {
    const std::vector<float> once = *x;
    for (int again = 1; again < 16; ++again) x->insert(x->end(), once.begin(), once.end());
  }
  const auto exact = test::run_delta<double>(p, recurrent_form, test::cast<double>(in), test::forward_only);
  for (const FormChoice& form : {chunked_form(64), recurrent_form}) {
    const auto r = test::run_delta<float>(p, form, in, test::forward_only);
    EXPECT_TRUE(close(r.o, exact.o, 1e-4)) << name_of(form);
    EXPECT_TRUE(close(r.errors, exact.errors, 1e-4)) << name_of(form);
  }
}

// The decay's gradient is zero in exact arithmetic where one key is written with full strength.
TEST_P(DeltaStability, GradientsInFloat) {
  for (const bool decays : {false, true}) {
    LinearProblem p = test::delta_problem(GetParam().map, 1, 4096, 1, 1, 4);
    p.decays = decays;
    const auto in = inputs(p);
    auto f = test::run_delta<float>(p, chunked_form(64), in);
    auto d = test::run_delta<double>(p, chunked_form(64), test::cast<double>(in));
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(close(*test::gradients_of(f)[i].second, *test::gradients_of(d)[i].second, 2e-5))
          << test::gradients_of(f)[i].first;
    for (size_t t = 0; t < f.dlog_decay.size(); ++t)
      ASSERT_NEAR(f.dlog_decay[t], d.dlog_decay[t], 1e-4) << "decays, token " << t;
  }
}

std::vector<Hard> hard_cases() {
  std::vector<Hard> all;
  for (const FeatureMap& map : {identity8, psd(5, 1), psd(8, 2)})
    for (const Keys keys : {Keys::random, Keys::one, Keys::repeated_through_a_chunk, Keys::nearly_parallel})
      for (const bool full_strength : {true, false})
        if (full_strength || map.first_order()) all.push_back({map, keys, full_strength});
  return all;
}

// Sums over a decaying past do not gather the rounding of all later tokens.
TEST(DeltaAttentionOp, TheDecayGradientIsAsGoodInLongSequences) {
  LinearProblem p = test::delta_problem({MapKind::identity, 4, 1}, 1, 65536, 1, 1, 2);
  p.decays = true;
  auto in = test::random_delta_inputs(p, 1);
  for (size_t i = 0; i < in.k.size(); ++i) in.k[i] = in.k[i % 4];
  for (double& beta : in.beta) beta = 1;
  for (double& log_decay : in.log_decay) log_decay *= 1e-3;
  const auto narrow = test::cast<float>(in);
  const auto f = test::run_delta<float>(p, chunked_form(64), narrow).dlog_decay;
  const auto d = test::run_delta<double>(p, chunked_form(64), test::cast<double>(narrow)).dlog_decay;
  double squares = 0;
  for (size_t t = 0; t < f.size(); ++t) squares += (f[t] - d[t]) * (f[t] - d[t]);
  EXPECT_LT(std::sqrt(squares / 65536), 4e-5);
}

// A factor of e^-1e6 between two tokens leaves the finer ones around it alone, in values and gradients.
TEST(DeltaAttentionOp, OneStrongDecayDoesNotBlurTheOthers) {
  for (const FeatureMap& map : {identity8, psd(8, 2)}) {
    LinearProblem p = test::delta_problem(map, 1, 200, 1, 1, 4);
    p.decays = true;
    auto in = test::random_delta_inputs(p, 1);
    for (size_t t = 0; t < 200; ++t)
      in.log_decay[t] = t % 37 == 5 ? -1e6 : -1e-3 * static_cast<double>(t % 7);
    auto expected = test::delta_oracle(p, in);
    for (const FormChoice& form : {chunked_form(64), chunked_form(16), recurrent_form}) {
      SCOPED_TRACE(name_of(form));
      auto d = test::run_delta<double>(p, form, in);
      auto f = test::run_delta<float>(p, form, test::cast<float>(in));
      test::expect_values(d, expected, 1e-12);
      test::expect_values(f, expected, 2e-6);
      for (size_t i = 0; i < 5; ++i)
        EXPECT_TRUE(close(*test::gradients_of(f)[i].second, *test::gradients_of(d)[i].second, 1e-5))
            << test::gradients_of(f)[i].first;
      for (size_t t = 5; t < 200; t += 37) EXPECT_NEAR(f.dlog_decay[t], 0, 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeltaStability, ::testing::ValuesIn(hard_cases()));

}  // namespace
}  // namespace kata
