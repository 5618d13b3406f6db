#include "eval/results.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/version.h"
#include "eval/table_to_json.h"

namespace kata {

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

Json scores_json(const std::vector<GridCell>& grid, const std::vector<std::optional<CellScore>>& scores) {
  Json cells = Json::object();
  for (size_t i = 0; i < grid.size(); ++i)
    if (const auto& score = scores[i])
      cells[grid[i].name()] = {{"accuracy", number(score->accuracy)},
                               {"loss", number(score->loss)},
                               {"examples", score->examples}};
  return cells;
}

Json rate_json(const std::vector<GridCell>& grid, const RateResult& rate) {
  return {{"learning_rate", number(rate.learning_rate)},
          {"failed", rate.trouble.empty() ? Json(nullptr) : Json(rate.trouble)},
          {"train_seconds", number(rate.train_seconds)},
          {"train_loss", number(rate.train_loss)},
          {"trained_by_commit", rate.commit.empty() ? Json(nullptr) : Json(rate.commit)},
          {"scores", scores_json(grid, rate.scores)}};
}

Json model_json(const SuiteResults& results, const ModelResult& model) {
  Json states = Json::object(), rates = Json::array();
  for (size_t i = 0; i < results.grid.size(); ++i)
    states[std::to_string(results.grid[i].spec.length)] = model.state_entries[i];
  for (const RateResult& rate : model.rates) rates.push_back(rate_json(results.grid, rate));
  const RateResult* best = model.best();
  return {{"parameters", model.parameters},
          {"state_entries", states},
          {"best_learning_rate", best ? number(best->learning_rate) : Json(nullptr)},
          {"rates", rates}};
}

// Lengths of the grid, each once, in its order.
std::vector<size_t> cells_of_new_lengths(const std::vector<GridCell>& grid) {
  std::vector<size_t> cells;
  for (size_t i = 0; i < grid.size(); ++i)
    if (std::none_of(cells.begin(), cells.end(),
                     [&](size_t j) { return grid[j].spec.length == grid[i].spec.length; }))
      cells.push_back(i);
  return cells;
}

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::vector<std::string> model_row(const SuiteResults& results, const ModelResult& model) {
  const RateResult* best = model.best();
  std::vector<std::string> row{model.name};
  for (size_t i = 0; i < results.grid.size(); ++i) {
    const bool scored = best && best->scores[i];
    row.push_back(scored ? fmt::format("{:.3f}", best->scores[i]->accuracy) : best ? "-" : "failed");
  }
  for (const size_t i : cells_of_new_lengths(results.grid))
    row.push_back(with_commas(model.state_entries[i]));
  row.push_back(with_commas(model.parameters));
  row.push_back(best && best->learning_rate > 0 ? fmt::format("{:.3g}", best->learning_rate) : "-");
  row.push_back(best && best->train_seconds ? fmt::format("{:.1f}", *best->train_seconds) : "-");
  return row;
}

}  // namespace

bool RateResult::complete() const {
  return !trouble.empty() ||
         std::all_of(scores.begin(), scores.end(), [](const auto& score) { return score.has_value(); });
}

double RateResult::mean_accuracy() const {
  double sum = 0, count = 0;
  for (const auto& score : scores)
    if (score) sum += score->accuracy, ++count;
  return count > 0 ? sum / count : -1;
}

const RateResult* ModelResult::best() const {
  const RateResult* best = nullptr;
  for (const RateResult& rate : rates) {
    if (!rate.trouble.empty() || rate.mean_accuracy() < 0) continue;
    const bool better =
        !best || (rate.complete() != best->complete() ? rate.complete()
                                                      : rate.mean_accuracy() > best->mean_accuracy());
    if (better) best = &rate;
  }
  return best;
}

bool ModelResult::complete() const {
  return std::all_of(rates.begin(), rates.end(), [](const RateResult& rate) { return rate.complete(); });
}

bool SuiteResults::complete() const {
  return static_cast<int64_t>(models.size()) == planned_models &&
         std::all_of(models.begin(), models.end(), [](const ModelResult& model) { return model.complete(); });
}

std::string SuiteResults::title() const {
  return fmt::format("{}{}{}{}", suite.suite, quick ? " --quick" : "",
                     checkpoint.empty() ? "" : " --checkpoint ", checkpoint);
}

Json to_json(const SuiteResults& results) {
  Json scores = Json::object(), models = Json::object(), grid = Json::array();
  for (const ModelResult& model : results.models) {
    const RateResult* best = model.best();
    scores[model.name] = best ? scores_json(results.grid, best->scores) : Json::object();
    models[model.name] = model_json(results, model);
  }
  for (const GridCell& cell : results.grid)
    grid.push_back({{"name", cell.name()},
                    {"length", cell.spec.length},
                    {"pairs", cell.spec.pairs},
                    {"examples", cell.spec.examples},
                    {"seed", cell.spec.seed},
                    {"in_distribution", cell.trained}});
  Json checkpoint = results.checkpoint.empty() ? Json(nullptr) : Json(results.checkpoint);
  return {{"results", scores},
          {"complete", results.complete()},
          {"suite", results.suite.suite},
          {"quick", results.quick},
          {"checkpoint", checkpoint},
          {"grid", grid},
          {"models", models},
          {"config", TableToJson::json(results.suite)},
          {"commit", results.commit},
          {"date", results.date}};
}

ResultTable result_table(const SuiteResults& results) {
  ResultTable table;
  std::vector<std::string> head{"model"};
  bool marked = false;
  for (const GridCell& cell : results.grid) {
    head.push_back(fmt::format("{}{}", cell.name(), cell.trained ? "*" : ""));
    marked = marked || cell.trained;
  }
  for (const size_t i : cells_of_new_lengths(results.grid))
    head.push_back(fmt::format("state@{}", results.grid[i].spec.length));
  head.insert(head.end(), {"parameters", "lr", "train s"});
  table.rows.push_back(head);
  for (const ModelResult& model : results.models) table.rows.push_back(model_row(results, model));

  table.notes = {
      fmt::format("LxP: accuracy on examples of L tokens with P pairs{}",
                  marked ? "; * = in distribution: trained on this length and number of pairs" : ""),
      "accuracy: mean over examples of the fraction of labelled positions whose argmax is the label",
      "state@L: numbers that L tokens leave in all layers' states, mass included, convolution windows aside"};
  const bool choice = std::any_of(results.models.begin(), results.models.end(),
                                  [](const ModelResult& model) { return model.rates.size() > 1; });
  if (choice)
    table.notes.push_back(
        "lr: the learning rate with the best mean accuracy over the grid; results.json has all");
  return table;
}

std::string table_text(const ResultTable& table) {
  std::vector<size_t> widths(table.rows.at(0).size());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const std::string& note : table.notes) text += fmt::format("# {}\n", note);
  for (const auto& row : table.rows) {
    text += fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += "\n";
  }
  return text;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace kata
