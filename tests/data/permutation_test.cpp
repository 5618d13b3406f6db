#include "data/permutation.h"

#include <gtest/gtest.h>
#include <vector>

namespace kata {
namespace {

std::vector<uint64_t> order(uint64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> values(size);
  for (uint64_t i = 0; i < size; ++i) values[i] = permutation(i);
  return values;
}

::testing::AssertionResult is_bijection(const std::vector<uint64_t>& values) {
  std::vector<int> seen(values.size());
  for (const uint64_t value : values) {
    if (value >= values.size()) return ::testing::AssertionFailure() << value << " of " << values.size();
    if (++seen[value] > 1) return ::testing::AssertionFailure() << value << " twice";
  }
  return ::testing::AssertionSuccess();
}

int64_t fixed_points(const std::vector<uint64_t>& values) {
  int64_t fixed = 0;
  for (uint64_t i = 0; i < values.size(); ++i) fixed += values[i] == i;
  return fixed;
}

TEST(Permutation, VisitsEachValueOnce) {
  for (uint64_t size = 1; size <= 300; ++size)
    for (uint64_t epoch = 0; epoch < 3; ++epoch) EXPECT_TRUE(is_bijection(order(size, 7, epoch))) << size;
  for (const uint64_t size : {4095u, 4096u, 4097u, 65535u, 65536u, 65537u, 100003u})
    EXPECT_TRUE(is_bijection(order(size, 1, 2))) << size;
}

TEST(Permutation, IsNotTheIdentityAndLooksRandom) {
  for (uint64_t size = 50; size <= 300; ++size) EXPECT_LT(fixed_points(order(size, 7, 0)), 10) << size;
  // Neighbours land a third of the range apart on average, as independent uniform numbers do.
  const auto values = order(30000, 3, 0);
  double distance = 0;
  for (size_t i = 1; i < values.size(); ++i)
    distance += std::abs(static_cast<double>(values[i]) - static_cast<double>(values[i - 1]));
  EXPECT_NEAR(distance / (30000.0 * 30000.0), 1.0 / 3, 0.01);
}

TEST(Permutation, EachSmallOrderAndEachPlaceIsAsLikelyAsAnother) {
  // All 6 orders of three values, and the value at place 0 of eleven, over many epochs.
  std::vector<int> orders(27), first(11);
  for (uint64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto three = order(3, 5, epoch);
    ++orders[three[0] * 9 + three[1] * 3 + three[2]];
    ++first[Permutation(11, 5, epoch)(0)];
  }
  int kinds = 0;
  for (const int count : orders) {
    if (count == 0) continue;
    ++kinds;
    EXPECT_NEAR(count, 1000, 150);
  }
  EXPECT_EQ(kinds, 6);
  for (const int count : first) EXPECT_NEAR(count, 6000.0 / 11, 110);
}

TEST(Permutation, SeedAndEpochChangeIt) {
  EXPECT_EQ(order(200, 1, 0), order(200, 1, 0));
  EXPECT_NE(order(200, 1, 0), order(200, 1, 1));
  EXPECT_NE(order(200, 1, 0), order(200, 2, 0));
}

TEST(Permutation, HugeSizesStayInside) {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 9, 9);
  uint64_t largest = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t value = permutation(size - 1 - i);
    ASSERT_LT(value, size);
    largest = std::max(largest, value);
  }
  EXPECT_GT(largest, size / 10 * 9);
}

}  // namespace
}  // namespace kata
