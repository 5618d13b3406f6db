#include "eval/log_chart.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kata {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

// Equal factors are equal distances, to the right and upwards.
TEST(LogChart, Axes) {
  const std::string svg =
      log_charts({{"t", "x", "y", 0, {}, {{"a", 0, LogStyle::line, {{1, 1}, {10, 100}, {100, 10000}}}}}});
  double x[3], y[3];
  ASSERT_EQ(std::sscanf(svg.c_str() + svg.find("<path d=\"M") + 10, "%lf,%lf L%lf,%lf L%lf,%lf", &x[0], &y[0],
                        &x[1], &y[1], &x[2], &y[2]),
            6);
  EXPECT_LT(x[0], x[1]);
  EXPECT_GT(y[0], y[1]);
  EXPECT_NEAR(x[2] - x[1], x[1] - x[0], 0.3);
  EXPECT_NEAR(y[2] - y[1], y[1] - y[0], 0.3);
  for (const char* tick : {">1<", ">10<", ">100<", ">10k<"}) EXPECT_GE(count(svg, tick), 1u) << tick;
}

TEST(LogChart, WhatHasNoLogarithmIsLeftOut) {
  const std::string svg = log_charts(
      {{"t", "x", "y", 1, {}, {{"a", 0, LogStyle::line, {{1, 2}, {2, 0}, {0, 2}, {3, NAN}, {-1, 4}}}}}});
  EXPECT_EQ(count(svg, "<circle"), 1u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LogChart, KindsOfSeries) {
  const std::vector<std::pair<double, double>> points = {{1, 2}, {2, 3}};
  const std::string svg = log_charts(
      {{"t", "x", "y", 0, {}, {{"a", 0, LogStyle::line, points}, {"", 0, LogStyle::dashes, points}}},
       {"u", "x", "y", 0, {}, {{"a", 0, LogStyle::line, points}, {"<b>", 1, LogStyle::marks, points}}}});
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1u);
  EXPECT_EQ(count(svg, "<path"), 3u) << "marks alone have no line";
  EXPECT_EQ(count(svg, "r=\"6\""), 2u);
  EXPECT_EQ(count(svg, ">a<"), 1u) << "a name stands in the legend once";
  EXPECT_EQ(count(svg, ">&lt;b&gt;<"), 1u);
}

TEST(LogChart, TicksThatAreGiven) {
  const std::string svg = log_charts({{"t", "x", "y", 0, {7, 2100}, {{"a", 0, LogStyle::points, {{7, 3}}}}}});
  EXPECT_EQ(count(svg, ">7<"), 1u);
  EXPECT_EQ(count(svg, ">2.1k<"), 1u);
  EXPECT_EQ(count(svg, ">10<"), 0u);
  EXPECT_EQ(count(svg, "<path"), 0u) << "points are not joined";
}

TEST(LogChart, NothingToDraw) {
  EXPECT_NE(log_charts({}).find("</svg>"), std::string::npos);
  EXPECT_EQ(log_charts({{"t", "x", "y", 0, {}, {}}}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace kata
