#include "nn/sampling.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "base/error.h"

namespace kata {
namespace {

constexpr int64_t vocab = 5;
const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.25f),
                                   std::log(0.05f)};

std::vector<double> frequencies(const SamplingOptions& options, int draws = 40000) {
  Sampler sampler(options);
  std::vector<double> counts(vocab);
  for (int i = 0; i < draws; ++i)
    counts[static_cast<size_t>(sampler.next(logits.data(), vocab))] += 1.0 / draws;
  return counts;
}

void expect_near(const std::vector<double>& measured, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(measured[i], expected[i], 0.015) << i;
}

TEST(Sampling, FollowsTheProbabilities) {
  expect_near(frequencies({}), {0.1, 0.4, 0.2, 0.25, 0.05});
}

TEST(Sampling, TemperatureZeroIsTheMostLikely) {
  expect_near(frequencies({.temperature = 0}), {0, 1, 0, 0, 0});
}

TEST(Sampling, TemperatureSharpens) {  // probabilities squared and normalised
  const double z = 0.01 + 0.16 + 0.04 + 0.0625 + 0.0025;
  expect_near(frequencies({.temperature = 0.5}), {0.01 / z, 0.16 / z, 0.04 / z, 0.0625 / z, 0.0025 / z});
}

TEST(Sampling, TopK) {
  expect_near(frequencies({.top_k = 2}), {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_near(frequencies({.top_p = 0.6}), {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0});
  expect_near(frequencies({.top_p = 1e-9}), {0, 1, 0, 0, 0});
}

TEST(Sampling, TheSameSeedGivesTheSameTokens) {
  Sampler a({.seed = 3}), b({.seed = 3}), c({.seed = 4});
  int differing = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t token = a.next(logits.data(), vocab);
    EXPECT_EQ(token, b.next(logits.data(), vocab));
    differing += token != c.next(logits.data(), vocab);
  }
  EXPECT_GT(differing, 20);
}

TEST(Sampling, TiesGoToTheLowerId) {
  const std::vector<float> flat(vocab, 1.0f);
  Sampler greedy({.temperature = 0}), top({.top_k = 1});
  EXPECT_EQ(greedy.next(flat.data(), vocab), 0);
  EXPECT_EQ(top.next(flat.data(), vocab), 0);
}

TEST(Sampling, ANonFiniteLogitIsANumericalError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> broken = logits;
    broken[3] = bad;
    try {
      Sampler({}).next(broken.data(), vocab);
      FAIL() << "accepted " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::numeric);
      EXPECT_NE(std::string(error.what()).find("token 3"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace kata
