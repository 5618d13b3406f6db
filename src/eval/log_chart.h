// Charts with two logarithmic axes as SVG text.
#pragma once

#include <string>
#include <vector>

namespace kata {

enum class LogStyle {
  line,    // points joined
  points,  // small marks alone
  dashes,  // a line without marks, for bounds
  marks    // large filled marks alone
};

struct LogSeries {
  std::string name;  // of the legend; empty = not in it
  size_t colour = 0;
  LogStyle style = LogStyle::line;
  std::vector<std::pair<double, double>> points;  // those that are not finite and above 0 are left out
};

struct LogChart {
  std::string title, x_label, y_label;
  double level = 0;           // a horizontal line; 0 = none
  std::vector<double> ticks;  // of the x axis; empty = round numbers
  std::vector<LogSeries> series;
};

// The charts in rows of two, and one legend of all names under them; an <svg> that needs nothing else.
std::string log_charts(const std::vector<LogChart>& charts);

}  // namespace kata
