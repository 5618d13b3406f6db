#include "eval/svg_chart.h"

#include <cmath>
#include <gtest/gtest.h>

namespace kata {
namespace {

std::vector<std::string> labels(double low, double high, size_t most) {
  std::vector<std::string> all;
  for (const ChartTick& tick : log_ticks(low, high, most)) all.push_back(tick.label);
  return all;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

TEST(SvgChart, Ticks) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels(700, 6000, 7), (Labels{"1k", "2k", "5k"}));
  EXPECT_EQ(labels(900, 11e6, 7), (Labels{"1k", "10k", "100k", "1M", "10M"}));
  EXPECT_EQ(labels(1000, 90000, 5), (Labels{"1k", "3k", "10k", "30k"}));
  EXPECT_EQ(labels(1, 1e30, 5), (Labels{"1", "1e+21G"}));
}

TEST(SvgChart, Counts) {
  EXPECT_EQ(human_count(850), "850");
  EXPECT_EQ(human_count(16384), "16.4k");
  EXPECT_EQ(human_count(1048576), "1.05M");
}

TEST(SvgChart, PointsThatAreNoNumbersAreLeftOut) {
  Chart chart{"t", "x", {{64, "64", ""}, {128, "128", ""}}, true, {}};
  chart.series = {{"a", {{64, 1.0}, {128, NAN}}}, {"b", {{64, 0.5}, {128, 0.25}}}};
  const std::string svg = svg_charts({chart});
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(count(svg, "<circle"), 2u) << "one point, one in the legend";
  EXPECT_EQ(count(svg, "<polygon"), 3u);
}

// Accuracy 1 is drawn above accuracy 0, longer lengths to the right.
TEST(SvgChart, Orientation) {
  Chart chart{"t", "x", {{64, "64", ""}, {128, "128", ""}}, true, {}};
  chart.series = {{"a", {{64, 1.0}, {128, 0.0}}}};
  const std::string svg = svg_charts({chart});
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  ASSERT_EQ(std::sscanf(svg.c_str() + svg.find("<path d=\"M") + 10, "%lf,%lf L%lf,%lf", &x0, &y0, &x1, &y1),
            4);
  EXPECT_LT(x0, x1);
  EXPECT_LT(y0, y1);
}

TEST(SvgChart, NothingToDraw) {
  EXPECT_NE(svg_charts({}).find("</svg>"), std::string::npos);
  EXPECT_EQ(svg_charts({Chart{"t", "x", {{5, "5", ""}}, false, {}}}).find("nan"), std::string::npos);
}

}  // namespace
}  // namespace kata
