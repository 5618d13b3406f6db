#include "eval/log_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "eval/svg_chart.h"

namespace kata {

namespace {

// Sizes in SVG units, about a pixel each.
constexpr double panel_width = 520, panel_height = 380;
constexpr double left = 70, right = 18, top = 44, bottom = 54;
constexpr double legend_row = 24, legend_column = 200;
constexpr size_t columns = 2;

constexpr std::array<const char*, 10> colours = {"#1b6ca8", "#d1495b", "#2a8c5a", "#e08a1e", "#7b4ea3",
                                                 "#3aa6b9", "#8c5a3c", "#c2529b", "#5b6770", "#9aa61e"};

const char* colour_of(size_t index) {
  return colours[index % colours.size()];
}

bool drawable(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second) && point.first > 0 && point.second > 0;
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, x2, y1, y2,
                     style);
}

std::string text_at(double x, double y, const char* anchor, double size, const std::string& text,
                    const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" {}>{}</text>\n", x,
                     y, anchor, size, more, xml_text(text));
}

// The values that an axis shows, in logs; a chart without points shows 1 to 10.
struct Axis {
  double low = INFINITY, high = -INFINITY;

  void include(double value) {
    low = std::min(low, std::log(value));
    high = std::max(high, std::log(value));
  }
  void close() {
    if (low > high) low = 0, high = std::log(10.0);
    const double margin = std::max(0.04 * (high - low), 0.05);
    low -= margin, high += margin;
  }
  double part(double value) const { return (std::log(value) - low) / (high - low); }
  std::vector<ChartTick> ticks() const {
    constexpr size_t most = 7;
    return log_ticks(std::exp(low), std::exp(high), most);
  }
};

class Panel {
 public:
  Panel(const LogChart& chart, double x, double y) : chart_(chart), x_(x), y_(y) {
    for (const LogSeries& series : chart.series)
      for (const auto& point : series.points)
        if (drawable(point)) across_.include(point.first), up_.include(point.second);
    for (const double x : chart.ticks) across_.include(x);
    if (chart.level > 0) up_.include(chart.level);
    across_.close();
    up_.close();
  }

  std::string draw() const {
    std::string out = axes();
    for (const LogSeries& series : chart_.series) out += draw(series);
    return out;
  }

 private:
  double at_x(double value) const { return x_ + left + across_.part(value) * (panel_width - left - right); }
  double at_y(double value) const {
    return y_ + panel_height - bottom - up_.part(value) * (panel_height - top - bottom);
  }

  std::string axes() const {
    const double begin = x_ + left, end = x_ + panel_width - right, roof = y_ + top,
                 floor = y_ + panel_height - bottom;
    std::string out = text_at(begin, y_ + 26, "start", 15, chart_.title, "font-weight=\"600\"");
    std::vector<ChartTick> ticks = chart_.ticks.empty() ? across_.ticks() : std::vector<ChartTick>();
    for (const double x : chart_.ticks) ticks.push_back({x, human_count(x), ""});
    for (const ChartTick& tick : ticks) {
      out += line(at_x(tick.x), roof, at_x(tick.x), floor + 5, "stroke=\"#e3e6e8\"");
      out += text_at(at_x(tick.x), floor + 19, "middle", 12, tick.label);
    }
    for (const ChartTick& tick : up_.ticks()) {
      out += line(begin, at_y(tick.x), end, at_y(tick.x), "stroke=\"#e3e6e8\"");
      out += text_at(begin - 8, at_y(tick.x) + 4, "end", 12, tick.label);
    }
    if (chart_.level > 0)
      out += line(begin, at_y(chart_.level), end, at_y(chart_.level), "stroke=\"#22282d\"");
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#9aa3ab\"/>\n",
        begin, roof, end - begin, floor - roof);
    out += text_at((begin + end) / 2, floor + 40, "middle", 12, chart_.x_label);
    const double middle = (roof + floor) / 2;
    return out + text_at(x_ + 16, middle, "middle", 12, chart_.y_label,
                         fmt::format("transform=\"rotate(-90 {:.1f} {:.1f})\"", x_ + 16, middle));
  }

  std::string draw(const LogSeries& series) const {
    const char* colour = colour_of(series.colour);
    const bool large = series.style == LogStyle::marks, dashed = series.style == LogStyle::dashes;
    std::string path, marks;
    for (const auto& point : series.points) {
      if (!drawable(point)) continue;
      const double px = at_x(point.first), py = at_y(point.second);
      path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", px, py);
      marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"{}\"/>\n", px,
                           py, large ? 6 : 3, large ? colour : "#fff", colour);
    }
    if (path.empty() || large || series.style == LogStyle::points) return marks;
    path = fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" {}/>\n", path, colour,
                       dashed ? "stroke-dasharray=\"6 4\" stroke-width=\"1.4\"" : "stroke-width=\"2\"");
    return dashed ? path : path + marks;
  }

  const LogChart& chart_;
  double x_, y_;
  Axis across_, up_;
};

}  // namespace

std::string log_charts(const std::vector<LogChart>& charts) {
  std::vector<std::pair<std::string, size_t>> names;
  for (const LogChart& chart : charts)
    for (const LogSeries& series : chart.series) {
      const std::pair<std::string, size_t> entry{series.name, series.colour};
      if (!series.name.empty() && std::find(names.begin(), names.end(), entry) == names.end())
        names.push_back(entry);
    }
  const double width = panel_width * columns;
  const auto panel_rows = static_cast<double>((charts.size() + columns - 1) / columns);
  const auto legend_columns = static_cast<size_t>((width - left) / legend_column);
  const auto legend_rows = static_cast<double>((names.size() + legend_columns - 1) / legend_columns);
  const double height = panel_rows * panel_height + 8 + legend_rows * legend_row;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"system-ui, Helvetica, Arial, sans-serif\" fill=\"#22282d\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
      width, height);
  for (size_t i = 0; i < charts.size(); ++i)
    out += Panel(charts[i], panel_width * static_cast<double>(i % columns),
                 panel_height * static_cast<double>(i / columns))
               .draw();
  for (size_t i = 0; i < names.size(); ++i) {
    const double x = left + legend_column * static_cast<double>(i % legend_columns);
    const double y = panel_rows * panel_height + legend_row * (0.5 + static_cast<double>(i / legend_columns));
    out += line(x, y, x + 28, y,
                fmt::format("stroke=\"{}\" stroke-width=\"3\"", colour_of(names[i].second)).c_str());
    out += text_at(x + 36, y + 4, "start", 13, names[i].first);
  }
  return out + "</svg>\n";
}

}  // namespace kata
