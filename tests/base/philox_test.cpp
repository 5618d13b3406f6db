#include "base/philox.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <vector>

namespace kata {
namespace {

using Block = std::array<uint32_t, 4>;

// The published known answers of Philox4x32-10. Counter words 0, 1 are our index, 2, 3 our stream.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, 0).block(0), (Block{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox(~0ull, ~0ull).block(~0ull), (Block{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(Philox(0x299f31d0a4093822ull, 0x0370734413198a2eull).block(0x85a308d3243f6a88ull),
            (Block{0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, DrawsAreTheWordsOfTheBlock) {
  const Philox random(7, 3);
  for (uint64_t index : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
    const Block block = random.block(index);
    const uint64_t bits = static_cast<uint64_t>(block[1]) << 32 | block[0];
    EXPECT_EQ(random.bits(index), bits);
    EXPECT_EQ(random.uniform(index), std::ldexp(static_cast<double>(bits >> 11), -53));
    EXPECT_EQ(random.below(index, 2), bits >> 63);
    EXPECT_EQ(random.below(index, 1), 0u);
    EXPECT_EQ(random.below(index, uint64_t{1} << 32), block[1]);
  }
}

TEST(Philox, SeedStreamAndIndexAllMatter) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
    for (uint64_t stream : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
      for (uint64_t index : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
        seen.insert(Philox(seed, stream).bits(index));
  EXPECT_EQ(seen.size(), 27u);
}

TEST(Philox, UniformAndNormalHaveTheirMoments) {
  const Philox random(11, stream_test);
  const uint64_t n = 200000;
  double mean = 0, mean_normal = 0, square = 0, fourth = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const double u = random.uniform(i), x = random.normal(i);
    ASSERT_TRUE(u >= 0 && u < 1);
    ASSERT_TRUE(std::isfinite(x));
    mean += u / n;
    mean_normal += x / n;
    square += x * x / n;
    fourth += x * x * x * x / n;
  }
  EXPECT_NEAR(mean, 0.5, 0.003);  // five standard errors
  EXPECT_NEAR(mean_normal, 0, 0.012);
  EXPECT_NEAR(square, 1, 0.016);
  EXPECT_NEAR(fourth, 3, 0.11);
}

TEST(Philox, BelowIsUniformAndInRange) {
  const Philox random(12, stream_test);
  std::vector<int> counts(7);
  for (uint64_t i = 0; i < 70000; ++i) ++counts.at(random.below(i, 7));
  for (int count : counts) EXPECT_NEAR(count, 10000, 470);  // five standard deviations
  for (uint64_t i = 0; i < 100; ++i) EXPECT_LT(random.below(i, ~0ull), ~0ull);
}

}  // namespace
}  // namespace kata
