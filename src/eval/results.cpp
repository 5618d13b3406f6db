#include "eval/results.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
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
    if (const auto& score = scores[i]) {
      Json& cell = cells[grid[i].name()] = Json::object();
      for (const Metric& metric : score->metrics) cell[metric.name] = number(metric.value);
      cell["loss"] = number(score->loss);
      cell["examples"] = score->examples;
    }
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

bool is_overwrite(const SuiteResults& results) {
  return results.suite.task.name == "overwrite";
}

// What is shown of the task, by number of rewrites: over all questions of the cells that have it.
Json by_rewrites(const std::vector<GridCell>& grid, const RateResult& rate) {
  std::map<int64_t, std::vector<size_t>> cells;
  for (size_t i = 0; i < grid.size(); ++i)
    if (rate.scores[i]) cells[grid[i].spec.rewrites].push_back(i);
  Json all = Json::object();
  for (const auto& [rewrites, members] : cells)
    for (const ShownMetric& shown : shown_metrics("overwrite")) {
      double sum = 0, questions = 0;
      for (const size_t i : members) {
        const auto asked = static_cast<double>(grid[i].spec.examples * grid[i].spec.rewritten);
        sum += rate.scores[i]->metric(shown.name) * asked;
        questions += asked;
      }
      all[std::to_string(rewrites)][shown.name] = number(sum / questions);
    }
  return all;
}

Json model_json(const SuiteResults& results, const ModelResult& model) {
  Json states = Json::object(), rates = Json::array();
  for (size_t i = 0; i < results.grid.size(); ++i)
    states[std::to_string(results.grid[i].spec.length)] = model.state_entries[i];
  for (const RateResult& rate : model.rates) rates.push_back(rate_json(results.grid, rate));
  const RateResult* best = model.best();
  Json all = {{"parameters", model.parameters},
              {"state_entries", states},
              {"best_learning_rate", best ? number(best->learning_rate) : Json(nullptr)},
              {"rates", rates}};
  if (is_overwrite(results)) all["by_rewrites"] = best ? by_rewrites(results.grid, *best) : Json::object();
  return all;
}

Json grid_json(const GridCell& cell) {
  Json all = {{"name", cell.name()},      {"length", cell.spec.length},
              {"pairs", cell.spec.pairs}, {"examples", cell.spec.examples},
              {"seed", cell.spec.seed},   {"in_distribution", cell.trained}};
  if (cell.spec.task != "overwrite") return all;
  all["rewrites"] = cell.spec.rewrites;
  all["rewritten"] = cell.spec.rewritten;
  all["layout"] = cell.spec.layout;
  const OverwriteChance chance = overwrite_chance(cell.spec);
  all["chance"] = {
      {"among_all_values", {{"latest_acc", chance.latest_of_all}, {"stale_rate", chance.stale_of_all}}},
      {"among_the_keys_values", {{"latest_acc", chance.latest_of_key}, {"stale_rate", chance.stale_of_key}}}};
  return all;
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

std::string score_text(const CellScore& score, const std::string& task) {
  std::string text;
  for (const ShownMetric& shown : shown_metrics(task))
    text += fmt::format("{}{:.3f}", text.empty() ? "" : "/", score.metric(shown.name));
  return text;
}

std::vector<std::string> overwrite_notes(const std::vector<GridCell>& grid, bool marked) {
  std::map<int64_t, std::string> of_key;
  std::string of_all;
  for (const GridCell& cell : grid) {
    const OverwriteChance chance = overwrite_chance(cell.spec);
    of_key[cell.spec.rewrites] =
        fmt::format("r{} {:.3f}/{:.3f}", cell.spec.rewrites, chance.latest_of_key, chance.stale_of_key);
    of_all += fmt::format("{}{} {:.3f}/{:.3f}", of_all.empty() ? "" : ", ", cell.name(), chance.latest_of_all,
                          chance.stale_of_all);
  }
  std::vector<std::string> texts;
  for (const auto& [rewrites, text] : of_key) texts.push_back(text);
  return {fmt::format(
              "LxPrR: latest accuracy/stale rate on examples of L tokens with P keys that are bound R times "
              "more, or U of them where uU stands{}",
              marked ? "; * = in distribution: trained on this kind of examples" : ""),
          "latest accuracy: fraction of the questions on rewritten keys whose argmax over the whole "
          "vocabulary is the "
          "value bound last; stale rate: an earlier value of the same key; results.json has all rates",
          "chance, a guess among the key's own values: " + joined(texts),
          "chance, a guess among all values of the example: " + of_all};
}

std::vector<std::string> recall_notes(bool marked) {
  return {fmt::format("LxP: accuracy on examples of L tokens with P pairs{}",
                      marked ? "; * = in distribution: trained on this length and number of pairs" : ""),
          "accuracy: mean over examples of the fraction of labelled positions whose argmax is the label"};
}

std::vector<std::string> model_row(const SuiteResults& results, const ModelResult& model) {
  const RateResult* best = model.best();
  std::vector<std::string> row{model.name};
  for (size_t i = 0; i < results.grid.size(); ++i) {
    const bool scored = best && best->scores[i];
    row.push_back(scored ? score_text(*best->scores[i], results.suite.task.name) : best ? "-" : "failed");
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
    if (score) sum += score->headline(), ++count;
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
  for (const GridCell& cell : results.grid) grid.push_back(grid_json(cell));
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

  table.notes = is_overwrite(results) ? overwrite_notes(results.grid, marked) : recall_notes(marked);
  table.notes.push_back(
      "state@L: numbers that L tokens leave in all layers' states, mass included, convolution windows aside");
  for (const SuiteModel& model : results.suite.models)
    if (model.steps != 0 && results.checkpoint.empty())
      table.notes.push_back(fmt::format("{}: trained for {} steps, where the others have {} unless said here",
                                        model.name, model.steps, results.suite.steps()));
  const bool choice = std::any_of(results.models.begin(), results.models.end(),
                                  [](const ModelResult& model) { return model.rates.size() > 1; });
  if (choice)
    table.notes.push_back(
        fmt::format("lr: the learning rate with the best mean {} over the grid; results.json has all",
                    shown_metrics(results.suite.task.name)[0].title));
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
