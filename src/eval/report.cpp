#include "eval/report.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "eval/svg_chart.h"

namespace kata {

namespace {

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
th:first-child, td:first-child { text-align: left; }
th { border-bottom: 2px solid #9aa3ab; }
pre { background: #f5f7f8; padding: 1em; white-space: pre-wrap; font-size: 13px; line-height: 1.4; }
)";

// A metric of a model in a cell; NaN where there is none.
double value(const ModelResult& model, size_t cell, const ShownMetric& shown) {
  const RateResult* best = model.best();
  return best && best->scores[cell] ? best->scores[cell]->metric(shown.name)
                                    : std::numeric_limits<double>::quiet_NaN();
}

std::string capital(std::string title) {
  title[0] = static_cast<char>(std::toupper(title[0]));
  return title;
}

Chart length_chart(const SuiteResults& results, const ShownMetric& shown) {
  Chart chart{
      capital(shown.title) + " against length", "length of an example, in tokens", {}, true, {}, shown.title};
  std::vector<size_t> order(results.grid.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto length = [&](size_t cell) { return results.grid[cell].spec.length; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length(a) < length(b); });
  bool twice = false;  // two cells of one length: then the cells stand side by side, in this order
  for (size_t i = 1; i < order.size(); ++i) twice = twice || length(order[i]) == length(order[i - 1]);
  std::vector<double> x;
  for (size_t i = 0; i < order.size(); ++i) {
    const GridCell& cell = results.grid[order[i]];
    x.push_back(twice ? std::exp2(static_cast<double>(i)) : static_cast<double>(cell.spec.length));
    chart.ticks.push_back(
        {x.back(), std::to_string(cell.spec.length) + (cell.trained ? "*" : ""), cell.detail()});
  }
  for (const ModelResult& model : results.models) {
    ChartSeries series{model.name, {}};
    for (size_t i = 0; i < order.size(); ++i) series.points.emplace_back(x[i], value(model, order[i], shown));
    chart.series.push_back(series);
  }
  return chart;
}

Chart state_chart(const SuiteResults& results, const ShownMetric& shown) {
  size_t hardest = 0;
  for (size_t i = 0; i < results.grid.size(); ++i)
    if (results.grid[i].spec.length >= results.grid[hardest].spec.length) hardest = i;
  const ExampleSpec& spec = results.grid[hardest].spec;
  const std::string cell = spec.task == "overwrite"
                               ? results.grid[hardest].name()
                               : fmt::format("{} tokens with {} pairs", spec.length, spec.pairs);
  Chart chart{fmt::format("{} against state, {}", capital(shown.title), cell),
              fmt::format("state entries after {} tokens, all layers", spec.length),
              {},
              false,
              {},
              shown.title};
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const ModelResult& model : results.models) {
    const auto entries = static_cast<double>(std::max<int64_t>(model.state_entries[hardest], 1));
    chart.series.push_back({model.name, {{entries, value(model, hardest, shown)}}});
    low = std::min(low, entries);
    high = std::max(high, entries);
  }
  if (results.models.empty()) low = high = 1;
  constexpr size_t most_ticks = 7;
  chart.ticks = log_ticks(low / 1.5, high * 1.5, most_ticks);
  return chart;
}

std::string html_table(const ResultTable& table) {
  std::string out = "<div class=\"wide\"><table>\n";
  for (size_t r = 0; r < table.rows.size(); ++r) {
    out += "<tr>";
    for (const std::string& text : table.rows[r])
      out += fmt::format("<{0}>{1}</{0}>", r == 0 ? "th" : "td", xml_text(text));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string failures(const SuiteResults& results) {
  std::string items;
  for (const ModelResult& model : results.models)
    for (const RateResult& rate : model.rates)
      if (!rate.trouble.empty())
        items += fmt::format("<li>{} at learning rate {:.4g}: {}</li>\n", xml_text(model.name),
                             rate.learning_rate, xml_text(rate.trouble));
  return items.empty() ? "" : "<h2>Trainings that failed</h2>\n<ul>\n" + items + "</ul>\n";
}

}  // namespace

std::string report_html(const SuiteResults& results) {
  const ResultTable table = result_table(results);
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>kataeval: "
      "{0}</title>\n<style>{1}</style>\n"
      "</head>\n<body>\n<h1>kataeval --suite {0}</h1>\n<p class=\"meta\">commit {2}, {3}{4}</p>\n",
      xml_text(results.title()), style, xml_text(results.commit), results.date,
      results.complete() ? "" : "; not complete: the run was stopped, the same command goes on");
  if (!results.models.empty()) {
    const std::string& task = results.suite.task.name;
    for (const ShownMetric& shown : shown_metrics(task))
      out += svg_charts({length_chart(results, shown), state_chart(results, shown)});
    out += fmt::format(
        "<p class=\"notes\">* = trained on this {}. On the left the models stand "
        "side by side, so that none hides another.</p>\n",
        task == "overwrite" ? "kind of examples; second line: keys, and r times that a rewritten "
                              "one is bound again"
                            : "length and number of pairs");
  }
  out += "<h2>Results</h2>\n" + html_table(table) + "<div class=\"notes\">\n";
  for (const std::string& note : table.notes) out += "<p>" + xml_text(note) + ".</p>\n";
  out +=
      "</div>\n" + failures(results) + "<h2>Config</h2>\n<pre>" + xml_text(dump(results.suite)) + "</pre>\n";
  return out + "</body>\n</html>\n";
}

}  // namespace kata
