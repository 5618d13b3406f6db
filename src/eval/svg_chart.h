// Charts as SVG text: a panel of points against a logarithmic axis, an accuracy or another rate of 0 to 1
// upwards.
#pragma once

#include <string>
#include <vector>

namespace kata {

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, rate; NaN is left out
};

struct ChartTick {
  double x = 0;
  std::string label, second_line;
};

struct Chart {
  std::string title, x_label;
  std::vector<ChartTick> ticks;  // of the x axis
  bool lines = false;            // join the points of a series
  std::vector<ChartSeries> series;
  std::string y_label = "accuracy";
};

// Ticks at 1, 2 or 5 times powers of ten that cover [low, high], not more than about `most`.
std::vector<ChartTick> log_ticks(double low, double high, size_t most);

// The charts side by side and a legend under them; one <svg> element that needs nothing else. Series of the
// same place in every chart share colour and marker.
std::string svg_charts(const std::vector<Chart>& charts);

std::string xml_text(const std::string& text);  // &, <, > and quotes escaped
std::string human_count(double count);          // "850", "16.4k", "1.05M"

}  // namespace kata
