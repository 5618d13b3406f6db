#include "eval/capacity_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "eval/log_chart.h"
#include "eval/results.h"
#include "eval/svg_chart.h"
#include "eval/table_to_json.h"

namespace kata {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* style = R"(
body { font: 15px/1.5 system-ui, Helvetica, Arial, sans-serif; color: #22282d; max-width: 1100px; margin: 2em auto;
       padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin: 2em 0 .5em; }
.meta, .notes { color: #59636c; }
svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3em .8em; text-align: right; border-bottom: 1px solid #e3e6e8; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(4), td:nth-child(4) { text-align: left; }
th { border-bottom: 2px solid #9aa3ab; }
.no { background: #f9d9d9; }
pre { background: #f5f7f8; padding: 1em; white-space: pre-wrap; font-size: 13px; line-height: 1.4; }
)";

struct Part {
  const char* name;
  const char* title;
  std::vector<const char*> notes;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all = {
      {"power",
       "Interference of random keys",
       {"power: sum of score^2 over the T - 1 other keys, over the own score^2, both averaged; 1 = as strong "
        "as the signal",
        "bound: exact expectation, within 5%: p for raw scores, p (p + 2) / 3 for psd M 1; orthant and "
        "lorentz tend to pi^2 and 4"}},
      {"welch",
       "Largest coherence of T keys",
       {"coherence: largest |<u, v>|; the same keys under psd have its square",
        "bound: Welch, sqrt((T - p) / (p (T - 1)))"}},
      {"packing",
       "Keys kept out of T random ones",
       {"nu: score over the root of both own scores",
        "bound: psd (1/2) (1 - eps)^(-(p - 1)/2), raw scores with eps^2; none where T is too few to reach "
        "it"}},
      {"wall",
       "Keys with every nu below 1/2",
       {"bound for lorentz: p + 1 keys with p = width - 1, since nu below 1/2 needs obtuse h; others to "
        "compare"}},
      {"supports",
       "Keys without interference, orthant",
       {"none = at most what the map's 1e-6 alone gives; bound: one key per coordinate"}},
      {"certificates",
       "What certifies the maps",
       {"worst over all widths and pairs of random keys; raw scores may be negative: they are no cone"}}};
  return all;
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{:.5g}", value);
}

const char* relation_text(Relation relation) {
  switch (relation) {
    case Relation::none:
      return "";
    case Relation::equals:
      return "=";
    case Relation::at_least:
      return ">=";
    case Relation::at_most:
      return "<=";
  }
  return "";
}

bool has_ratio(const CapacityRow& row) {
  return row.has_bound() && row.bound != 0;
}

ResultTable part_table(const CapacityResults& results, const Part& part) {
  ResultTable table;
  table.rows.push_back({"map", "width", "n", "what", "T", "measured", "bound", "ratio", "holds"});
  for (const CapacityRow& row : results.rows) {
    if (row.part != part.name) continue;
    table.rows.push_back(
        {row.map, std::to_string(row.width), std::to_string(row.features), row.what,
         row.keys > 0 ? std::to_string(row.keys) : "-", number_text(row.measured),
         row.has_bound() ? fmt::format("{} {}", relation_text(row.relation), number_text(row.bound)) : "-",
         has_ratio(row) ? fmt::format("{:.4f}", row.measured / row.bound) : "-",
         row.has_bound() ? row.holds() ? "yes" : "NO" : "-"});
  }
  table.notes.push_back(part.title);
  table.notes.insert(table.notes.end(), part.notes.begin(), part.notes.end());
  return table;
}

std::string html_table(const ResultTable& table) {
  std::string out = "<div class=\"wide\"><table>\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    out += table.rows[r].back() == "NO" ? "<tr class=\"no\">" : "<tr>";
    for (const std::string& text : table.rows[r])
      out += fmt::format("<{0}>{1}</{0}>", r == 0 ? "th" : "td", xml_text(text));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// Place of a map in the config: its colour in every chart.
size_t colour_of(const CapacityResults& results, const std::string& label) {
  for (size_t i = 0; i < results.config.maps.size(); ++i)
    if (map_label(results.config.maps[i]) == label) return i;
  return results.config.maps.size();
}

// Power against T / p: points measured, dashes expected, a large mark where the power crosses 1.
std::vector<LogChart> power_charts(const CapacityResults& results) {
  std::vector<LogChart> charts;
  for (const double width : results.config.widths) {
    LogChart chart{fmt::format("Interference power, p = {}", width), "T / p", "power", 1, {}, {}};
    for (const CapacityCurve& curve : results.curves) {
      if (static_cast<double>(curve.width) != width) continue;
      const size_t colour = colour_of(results, curve.map);
      LogSeries expected{"", colour, LogStyle::dashes, {}}, measured{curve.map, colour, LogStyle::points, {}},
          crossing{"", colour, LogStyle::marks, {}};
      for (const PowerPoint& point : curve.curve.points) {
        const auto keys = static_cast<double>(point.keys);
        measured.points.emplace_back(keys / width, point.power);
        expected.points.emplace_back(keys / width, (keys - 1) * curve.expected);
      }
      if (curve.curve.threshold) crossing.points.emplace_back((*curve.curve.threshold + 1) / width, 1);
      for (const LogSeries& series : {expected, measured, crossing}) chart.series.push_back(series);
    }
    if (!chart.series.empty()) charts.push_back(chart);
  }
  return charts;
}

// Kept keys against the width: a chart for every `what` of the part that starts with `kind`.
std::vector<LogChart> count_charts(const CapacityResults& results, const std::string& part,
                                   const std::string& kind) {
  std::vector<LogChart> charts;
  for (const CapacityRow& row : results.rows) {
    if (row.part != part || !row.what.starts_with(kind)) continue;
    const std::string title = fmt::format("Keys {}", row.what);
    auto chart =
        std::find_if(charts.begin(), charts.end(), [&](const LogChart& c) { return c.title == title; });
    if (chart == charts.end())
      chart = charts.insert(charts.end(), {title, "width", "keys", 0, results.config.widths, {}});
    const size_t colour = colour_of(results, row.map);
    const auto add = [&](LogStyle style, double y) {
      auto series = std::find_if(chart->series.begin(), chart->series.end(),
                                 [&](const LogSeries& s) { return s.colour == colour && s.style == style; });
      if (series == chart->series.end())
        series = chart->series.insert(chart->series.end(),
                                      {style == LogStyle::line ? row.map : std::string(), colour, style, {}});
      series->points.emplace_back(static_cast<double>(row.width), y);
    };
    add(LogStyle::line, row.measured);
    if (row.has_bound()) add(LogStyle::dashes, row.bound);
  }
  return charts;
}

std::string picture(const std::vector<LogChart>& charts, const char* note) {
  if (charts.empty()) return "";
  return log_charts(charts) + fmt::format("<p class=\"notes\">{}</p>\n", note);
}

Json row_json(const CapacityRow& row) {
  const auto number = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  return {{"part", row.part},
          {"map", row.map},
          {"width", row.width},
          {"features", row.features},
          {"what", row.what},
          {"keys", row.keys > 0 ? Json(row.keys) : Json(nullptr)},
          {"measured", number(row.measured)},
          {"relation", row.has_bound() ? Json(relation_text(row.relation)) : Json(nullptr)},
          {"bound", row.has_bound() ? number(row.bound) : Json(nullptr)},
          {"ratio", has_ratio(row) ? number(row.measured / row.bound) : Json(nullptr)},
          {"holds", row.has_bound() ? Json(row.holds()) : Json(nullptr)}};
}

}  // namespace

std::string capacity_tables(const CapacityResults& results) {
  std::string out;
  for (const Part& part : parts()) {
    const ResultTable table = part_table(results, part);
    if (table.rows.size() > 1) out += "\n" + table_text(table);
  }
  return out;
}

Json to_json(const CapacityResults& results) {
  Json rows = Json::array(), curves = Json::array();
  for (const CapacityRow& row : results.rows) rows.push_back(row_json(row));
  for (const CapacityCurve& curve : results.curves) {
    Json points = Json::array();
    for (const PowerPoint& point : curve.curve.points)
      points.push_back({{"keys", point.keys}, {"draws", point.draws}, {"power", point.power}});
    curves.push_back({{"map", curve.map},
                      {"width", curve.width},
                      {"threshold", curve.curve.threshold ? Json(*curve.curve.threshold) : Json(nullptr)},
                      {"points", points}});
  }
  return {{"results", rows},
          {"complete", results.complete()},
          {"suite", results.config.suite},
          {"quick", results.quick},
          {"curves", curves},
          {"config", TableToJson::json(results.config)},
          {"commit", results.commit},
          {"date", results.date}};
}

std::string report_html(const CapacityResults& results) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>kataeval: capacity</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>kataeval --suite capacity{}</h1>\n<p class=\"meta\">commit "
      "{}, "
      "{}{}</p>\n",
      style, results.quick ? " --quick" : "", xml_text(results.commit), results.date,
      results.complete() ? "" : "; not complete: the run was stopped");
  for (const Part& part : parts()) {
    const ResultTable table = part_table(results, part);
    if (table.rows.size() == 1) continue;
    out += fmt::format("<h2>{}</h2>\n", xml_text(part.title));
    const std::string name = part.name;
    if (name == "power")
      out += picture(power_charts(results),
                     "Points: measured. Dashes: expected. Large marks: where the power crosses 1.");
    if (name == "packing")
      out += picture(count_charts(results, name, "kept at"), "Lines: measured. Dashes: the bound.");
    if (name == "wall")
      out +=
          picture(count_charts(results, name, "kept of random"),
                  "Lines: measured, at most the keys that were offered. Dashes: the wall of lorentz, which a "
                  "simplex reaches.");
    out += html_table(table) + "<div class=\"notes\">\n";
    for (size_t i = 1; i < table.notes.size(); ++i) out += "<p>" + xml_text(table.notes[i]) + ".</p>\n";
    out += "</div>\n";
  }
  return out + "<h2>Config</h2>\n<pre>" + xml_text(dump(results.config)) + "</pre>\n</body>\n</html>\n";
}

void write_results(const CapacityResults& results, const std::string& output, const std::string& extra_json) {
  const std::string json = to_json(results).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  write_file_atomic(output + "/results.json", json);
  if (!extra_json.empty()) write_file_atomic(extra_json, json);
  write_file_atomic(output + "/report.html", report_html(results));
}

}  // namespace kata
