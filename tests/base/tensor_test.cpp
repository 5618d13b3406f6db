#include "base/tensor.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace kata {
namespace {

std::vector<float> counted(size_t n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 0.0f);
  return x;
}

float at(const Tensor& t, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  int i = 0;
  for (const int64_t k : index) offset += k * t.stride(i++);
  return t.as<float>()[offset];
}

TEST(Shape, CountsAndPrints) {
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{3, 0, 2}).numel(), 0);
  EXPECT_EQ((Shape{3, 4}).str(), "[3, 4]");
  EXPECT_EQ(Shape{}.str(), "[]");
  EXPECT_FALSE((Shape{3} == Shape{3, 1}));
  EXPECT_THROW((Shape{-1}), std::logic_error);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), std::logic_error);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}).numel(), std::logic_error);
}

TEST(Tensor, ViewsPointAtTheSameElements) {
  auto x = counted(24);
  const Tensor t(x.data(), DType::f32, {4, 6});
  EXPECT_EQ(t.bytes(), 96u);
  EXPECT_EQ(at(t.rows(1, 3), {1, 2}), 14);
  const Tensor columns = t.columns(2, 6);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(at(columns, {3, 1}), 21);
  const Tensor heads = columns.split_last(2, 2);  // a head inside a strided projection
  EXPECT_EQ(heads.shape(), (Shape{4, 2, 2}));
  EXPECT_EQ(at(heads, {3, 1, 0}), 22);
  const Tensor batch = columns.split_first(2, 2);
  EXPECT_EQ(batch.shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(at(batch, {1, 1, 1}), 21);
  EXPECT_EQ(at(t.view({2, 12}), {1, 3}), 15);
  EXPECT_TRUE(t.rows(2, 4).contiguous());
  EXPECT_TRUE(t.columns(0, 6).contiguous());
}

TEST(Tensor, NullTensorsOfThePlanningPassAreViewedAsWell) {
  const Tensor t(nullptr, DType::f64, {4, 6});
  EXPECT_EQ(t.rows(2, 4).columns(1, 3).data(), nullptr);
  EXPECT_EQ(t.split_last(2, 3).shape(), (Shape{4, 2, 3}));
}

TEST(Tensor, WrongUsesAreChecked) {
  auto x = counted(24);
  const Tensor t(x.data(), DType::f32, {4, 6});
  EXPECT_THROW(t.as<double>(), std::logic_error);
  EXPECT_THROW(t.rows(3, 5), std::logic_error);
  EXPECT_THROW(t.columns(4, 3), std::logic_error);
  EXPECT_THROW(t.view({5, 5}), std::logic_error);
  EXPECT_THROW(t.columns(0, 2).view({8}), std::logic_error);
  EXPECT_THROW(t.split_last(4, 2), std::logic_error);
  EXPECT_THROW(t.split_first(3, 2), std::logic_error);
}

}  // namespace
}  // namespace kata
