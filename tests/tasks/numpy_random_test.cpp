#include "tasks/numpy_random.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace kata {
namespace {

// The values are those of numpy.random.RandomState(seed).
TEST(NumpyRandom, OutputsOfKnownSeeds) {
  NumpyRandom standard(5489);  // the reference implementation's default: 10000th output
  for (int i = 0; i < 9999; ++i) standard.next();
  EXPECT_EQ(standard.next(), 4123659995u);
  NumpyRandom zero(0);
  EXPECT_EQ(zero.next(), 2357136044u);
  EXPECT_EQ(zero.next(), 2546248239u);
}

TEST(NumpyRandom, DoublesOfFiftyThreeBits) {
  NumpyRandom random(42);
  EXPECT_EQ(random.uniform(), 0.3745401188473625);
  EXPECT_EQ(random.uniform(), 0.9507143064099162);
  EXPECT_EQ(random.uniform(), 0.7319939418114051);
}

TEST(NumpyRandom, BoundedRejectsWhatDoesNotFit) {
  NumpyRandom random(3), raw(3);
  for (const uint32_t limit : {1u, 2u, 3u, 4u, 255u, 256u, 1000u, 0x7fffffffu, 0x80000000u, 0xffffffffu})
    for (int i = 0; i < 50; ++i) {
      uint32_t mask = limit;
      for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
      uint32_t expected = raw.next() & mask;
      while (expected > limit) expected = raw.next() & mask;
      EXPECT_EQ(random.bounded(limit), expected);
    }
  EXPECT_EQ(random.bounded(0), 0u);
  EXPECT_EQ(random.next(), raw.next());  // 0 drew nothing
}

// The plain form of what shuffle() does without branches.
std::vector<uint32_t> plain_shuffle(NumpyRandom& random, uint32_t size) {
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = size; i-- > 1;) std::swap(order[i], order[random.bounded(i)]);
  return order;
}

TEST(NumpyRandom, ShuffleEqualsThePlainForm) {
  for (const uint32_t size :
       {0u, 1u, 2u, 3u, 4u, 5u, 31u, 32u, 33u, 255u, 256u, 257u, 258u, 4095u, 4096u, 4097u}) {
    NumpyRandom fast(size), plain(size);
    for (int round = 0; round < 3; ++round)
      for (const uint32_t keep : {size, size / 3}) {
        std::vector<uint32_t> order(size);
        std::iota(order.begin(), order.end(), 0u);
        fast.shuffle(order.data(), size, keep);
        const auto expected = plain_shuffle(plain, size);
        EXPECT_TRUE(std::equal(order.begin(), order.begin() + keep, expected.begin())) << size << " " << keep;
      }
    EXPECT_EQ(fast.next(), plain.next()) << size;  // as many draws
  }
}

TEST(NumpyRandom, PermutationOfAKnownSeed) {
  NumpyRandom random(0);
  EXPECT_EQ(plain_shuffle(random, 10), (std::vector<uint32_t>{2, 8, 4, 9, 1, 6, 7, 3, 0, 5}));
}

}  // namespace
}  // namespace kata
