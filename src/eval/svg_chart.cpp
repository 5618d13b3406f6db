#include "eval/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace kata {

namespace {

// Sizes in SVG units, about a pixel each.
constexpr double panel_width = 520, panel_height = 360;
constexpr double left = 62, right = 18, top = 44, bottom = 66;
constexpr double legend_row = 24, legend_column = 200;

constexpr double lowest = -0.03, highest = 1.05;  // of the accuracy axis: room for markers at 0 and 1

constexpr std::array<const char*, 10> colours = {"#1b6ca8", "#d1495b", "#2a8c5a", "#e08a1e", "#7b4ea3",
                                                 "#3aa6b9", "#8c5a3c", "#c2529b", "#5b6770", "#9aa61e"};

// A marker of about 11 units around (x, y): circle, square, diamond, two triangles, plus, cross, in turn.
std::string marker(size_t series, double x, double y) {
  const char* colour = colours[series % colours.size()];
  const std::string style = fmt::format("fill=\"#fff\" stroke=\"{}\" stroke-width=\"2.4\"", colour);
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string points;
    for (const auto& [dx, dy] : corners) points += fmt::format("{:.1f},{:.1f} ", x + dx, y + dy);
    return fmt::format("<polygon points=\"{}\" {}/>", points, style);
  };
  switch (series % 5) {
    case 0:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" {}/>", x, y, style);
    case 1:
      return polygon({{-4.5, -4.5}, {4.5, -4.5}, {4.5, 4.5}, {-4.5, 4.5}});
    case 2:
      return polygon({{0, -6}, {6, 0}, {0, 6}, {-6, 0}});
    case 3:
      return polygon({{0, -6}, {5.5, 4.5}, {-5.5, 4.5}});
    default:
      return polygon({{0, 6}, {5.5, -4.5}, {-5.5, -4.5}});
  }
}

std::string text_at(double x, double y, const std::string& anchor, double size, const std::string& text,
                    const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" {}>{}</text>\n", x,
                     y, anchor, size, more, xml_text(text));
}

class Panel {
 public:
  Panel(const Chart& chart, double offset) : chart_(chart), offset_(offset) {
    for (const ChartTick& tick : chart.ticks) include(tick.x);
    for (const ChartSeries& series : chart.series)
      for (const auto& [x, y] : series.points) include(x);
    const double margin = high_ > low_ ? 0.07 * (high_ - low_) : 1;
    low_ -= margin, high_ += margin;
  }

  std::string draw() const {
    std::string out = axes();
    // Series one above the other would hide each other: each is moved sideways a little.
    const auto count = static_cast<double>(chart_.series.size());
    for (size_t i = 0; i < chart_.series.size(); ++i) {
      const double shift = chart_.lines ? 5 * (static_cast<double>(i) - (count - 1) / 2) : 0;
      out += draw_series(i, std::clamp(shift, -25.0, 25.0));
    }
    return out;
  }

 private:
  void include(double x) {
    low_ = std::min(low_, std::log(x));
    high_ = std::max(high_, std::log(x));
  }
  double at_x(double x) const {
    return offset_ + left + (std::log(x) - low_) / (high_ - low_) * (panel_width - left - right);
  }
  double at_y(double y) const {
    return top + (highest - y) / (highest - lowest) * (panel_height - top - bottom);
  }

  std::string axes() const {
    const double begin = offset_ + left, end = offset_ + panel_width - right, floor = panel_height - bottom;
    std::string out = text_at(begin, 22, "start", 15, chart_.title, "font-weight=\"600\"");
    for (int i = 0; i <= 5; ++i) {
      const double y = at_y(i / 5.0);
      out +=
          fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e3e6e8\"/>\n",
                      begin, end, y, y);
      out += text_at(begin - 8, y + 4, "end", 12, fmt::format("{:.1f}", i / 5.0));
    }
    for (const ChartTick& tick : chart_.ticks) {
      const double x = at_x(tick.x);
      out +=
          fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e3e6e8\"/>\n",
                      x, x, top, floor + 5);
      out += text_at(x, floor + 19, "middle", 12, tick.label);
      if (!tick.second_line.empty())
        out += text_at(x, floor + 33, "middle", 11, tick.second_line, "fill=\"#66707a\"");
    }
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#9aa3ab\"/>\n",
        begin, top, end - begin, floor - top);
    out += text_at((begin + end) / 2, panel_height - 12, "middle", 12, chart_.x_label);
    const double middle = (top + floor) / 2;
    out += text_at(offset_ + 18, middle, "middle", 12, chart_.y_label,
                   fmt::format("transform=\"rotate(-90 {:.1f} {:.1f})\"", offset_ + 18, middle));
    return out;
  }

  std::string draw_series(size_t index, double shift) const {
    std::string path, markers;
    for (const auto& [x, y] : chart_.series[index].points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      const double px = at_x(x) + shift, py = at_y(y);
      path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", px, py);
      markers += marker(index, px, py) + "\n";
    }
    if (!chart_.lines || path.empty()) return markers;
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", path,
                       colours[index % colours.size()]) +
           markers;
  }

  const Chart& chart_;
  double offset_;
  double low_ = INFINITY, high_ = -INFINITY;  // of log x
};

}  // namespace

std::vector<ChartTick> log_ticks(double low, double high, size_t most) {
  for (const std::vector<double>& factors : {std::vector<double>{1, 2, 5}, {1, 3}, {1}}) {
    std::vector<ChartTick> ticks;
    const int first = static_cast<int>(std::floor(std::log10(low))),
              last = static_cast<int>(std::ceil(std::log10(high)));
    for (int power = first; power <= last; ++power)
      for (const double factor : factors) {
        const double x = factor * std::pow(10, power);
        if (x >= low * 0.999 && x <= high * 1.001) ticks.push_back({x, human_count(x), ""});
      }
    if (ticks.size() <= most) return ticks;
  }
  return {{low, human_count(low), ""}, {high, human_count(high), ""}};
}

std::string svg_charts(const std::vector<Chart>& charts) {
  const double width = panel_width * static_cast<double>(charts.size());
  const auto columns = static_cast<size_t>(std::max(1.0, std::floor((width - left) / legend_column)));
  const std::vector<ChartSeries> none;
  const std::vector<ChartSeries>& series = charts.empty() ? none : charts[0].series;
  const auto legend_rows = static_cast<double>((series.size() + columns - 1) / columns);
  const double height = panel_height + 8 + legend_rows * legend_row;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "font-family=\"system-ui, Helvetica, Arial, sans-serif\" fill=\"#22282d\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
      width, height);
  for (size_t i = 0; i < charts.size(); ++i)
    out += Panel(charts[i], panel_width * static_cast<double>(i)).draw();
  for (size_t i = 0; i < series.size(); ++i) {
    const double x = left + legend_column * static_cast<double>(i % columns);
    const double y = panel_height + legend_row * (0.5 + static_cast<double>(i / columns));
    out += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"2\"/>", x,
        x + 28, y, y, colours[i % colours.size()]);
    out += marker(i, x + 14, y);
    constexpr size_t longest = 22;  // characters that fit in a column
    std::string name = series[i].name;
    if (name.size() > longest) name = name.substr(0, longest - 3) + "...";
    out += text_at(x + 36, y + 4, "start", 13, name);
  }
  return out + "</svg>\n";
}

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string human_count(double count) {
  if (count < 1000) return fmt::format("{:.4g}", count);
  if (count < 1e6) return fmt::format("{:.3g}k", count / 1e3);
  if (count < 1e9) return fmt::format("{:.3g}M", count / 1e6);
  return fmt::format("{:.3g}G", count / 1e9);
}

}  // namespace kata
