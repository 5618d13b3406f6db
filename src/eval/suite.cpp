#include "eval/suite.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/parallel.h"
#include "base/version.h"
#include "eval/cell.h"
#include "eval/report.h"
#include "train/inference_model.h"

namespace kata {

namespace {

struct Model {
  const SuiteModel& config;
  std::vector<Cell> rates;
  ModelCost cost;
};

// Expected seconds of what is left, and its largest piece.
struct Work {
  double seconds = 0, largest = 0;
  int64_t trainings = 0, steps = 0, readings = 0;

  void add(double piece, double pieces) {
    seconds += piece * pieces;
    largest = std::max(largest, piece);
  }
};

void add_reading(Work& work, const ModelCost& cost, const std::vector<GridCell>& grid, size_t cell) {
  const auto slice = static_cast<double>(slice_examples(grid[cell]));
  work.add(cost.example[cell] * slice, static_cast<double>(grid[cell].spec.examples) / slice);
  ++work.readings;
}

bool has_work(const Cell& cell, const std::vector<GridCell>& grid) {
  return !cell.failed() &&
         (!cell.trained() || std::any_of(grid.begin(), grid.end(),
                                         [&](const GridCell& point) { return !cell.has(point.spec); }));
}

Work work_left(const SuiteConfig& suite, const std::vector<Model>& models, const StepOrder& order,
               const std::vector<GridCell>& grid) {
  Work work;
  for (const Model& model : models)
    for (const Cell& cell : model.rates) {
      if (!has_work(cell, grid)) continue;
      if (!cell.trained()) {
        const int64_t steps = suite.steps(model.config);
        work.seconds += order.seconds(model.cost, cell.step(), steps);
        work.steps += steps - cell.step();
        for (const double step : model.cost.step) work.largest = std::max(work.largest, step);
        ++work.trainings;
      }
      for (size_t i = 0; i < grid.size(); ++i)
        if (!cell.has(grid[i].spec)) add_reading(work, model.cost, grid, i);
    }
  return work;
}

std::string estimate_text(bool quick, const Work& work) {
  const std::string left =
      fmt::format("estimate: about {} on {} threads for {} trainings ({} steps in all) and {} readings",
                  human_seconds(work.seconds), thread_count(), work.trainings, work.steps, work.readings);
  return quick ? left
               : left +
                     "; --quick runs a small version in minutes; what is finished is kept, the same command "
                     "goes on";
}

std::string summary(const RateResult& result, const std::vector<GridCell>& grid) {
  std::string text;
  if (!result.trouble.empty()) return result.trouble;
  for (size_t i = 0; i < grid.size(); ++i)
    if (result.scores[i])
      text +=
          fmt::format("{}{} {:.3f}", text.empty() ? "" : ", ", grid[i].name(), result.scores[i]->headline());
  return shown_metrics(grid.at(0).spec.task)[0].title + " " + text;
}

void note_cached(const Cell& cell, const std::vector<GridCell>& grid, Monitor& monitor) {
  const RateResult result = cell.result(grid);
  monitor.note(
      fmt::format("{}: kept from before{}: {}", cell.label(),
                  result.commit == commit() ? "" : fmt::format(" (trained by commit {})", result.commit),
                  summary(result, grid)));
}

void work_on(Cell& cell, const std::vector<GridCell>& grid, const Model& model, ExampleSource* source,
             const StepOrder& order, Monitor& monitor) {
  const bool fresh = !cell.trained();
  if (fresh) cell.train(*source, order, model.cost, monitor);
  if (!cell.trained() || monitor.stop() != Stop::none) return;
  cell.read(grid, model.cost, monitor);
  const RateResult result = cell.result(grid);
  if (!result.complete()) return;
  const std::string how = fresh && !cell.failed()
                              ? fmt::format("trained in {}, loss {:.4f}; ",
                                            human_seconds(*result.train_seconds), *result.train_loss)
                              : "";
  monitor.note(fmt::format("{}: {}{}", cell.label(), how, summary(result, grid)));
}

ModelResult result_of(const SuiteConfig& suite, const Model& model, const std::vector<GridCell>& grid) {
  ModelResult result;
  result.name = model.config.name;
  ModelConfig sizes = suite.model;
  sizes.mixers = model.config.mixers;
  LanguageModel shape(sizes, DType::f32);
  result.parameters = shape.parameters().count();
  for (const GridCell& cell : grid) result.state_entries.push_back(shape.state_entries(cell.spec.length));
  for (const Cell& cell : model.rates) result.rates.push_back(cell.result(grid));
  return result;
}

SuiteResults empty_results(const SuiteConfig& suite, bool quick, const std::vector<GridCell>& grid) {
  SuiteResults results;
  results.suite = suite;
  results.quick = quick;
  results.grid = grid;
  results.commit = commit();
  results.date = utc_now();
  return results;
}

}  // namespace

void check_suite(const SuiteConfig& suite) {
  grid_of(suite);
  const std::vector<double>& rates = suite.train.learning_rates;
  for (size_t i = 0; i < rates.size(); ++i)
    if (std::count(rates.begin(), rates.end(), rates[i]) > 1)
      fail(ExitCode::usage, "train.learning_rates: {} is given twice; leave out one of the two", rates[i]);
}

SuiteResults run_suite(const SuiteConfig& suite, bool quick, const std::string& output, Monitor& monitor,
                       const Processor& processor) {
  const std::vector<GridCell> grid = grid_of(suite);
  const StepOrder order(suite);
  SuiteResults results = empty_results(suite, quick, grid);
  results.planned_models = static_cast<int64_t>(suite.models.size());
  std::vector<Model> models;
  for (const SuiteModel& config : suite.models) {
    Model& model = models.emplace_back(Model{config, {}, {}});
    bool work = false;
    for (const double rate : suite.train.learning_rates) {
      model.rates.emplace_back(suite, config, rate, output + "/cells", processor);
      work = work || has_work(model.rates.back(), grid);
    }
    if (work && monitor.stop() == Stop::none)
      model.cost = measure_cost(suite, config, grid, monitor, processor);
  }
  if (monitor.stop() == Stop::none) {
    const Work work = work_left(suite, models, order, grid);
    if (work.trainings + work.readings > 0) monitor.note(estimate_text(quick, work));
    std::unique_ptr<ExampleSource> source;
    if (work.trainings > 0)
      source = std::make_unique<ExampleSource>(train_specs(suite.task), suite.train.batch);
    monitor.expect(work.seconds, work.largest);
    for (Model& model : models)
      for (Cell& cell : model.rates) {
        if (!has_work(cell, grid))
          note_cached(cell, grid, monitor);
        else if (monitor.stop() == Stop::none)
          work_on(cell, grid, model, source.get(), order, monitor);
      }
  }
  for (const Model& model : models) {
    ModelResult result = result_of(suite, model, grid);
    const bool shown = std::any_of(result.rates.begin(), result.rates.end(), [](const RateResult& rate) {
      return !rate.trouble.empty() || rate.mean_accuracy() >= 0;
    });
    if (shown) results.models.push_back(std::move(result));
  }
  return results;
}

SuiteResults run_checkpoint(const SuiteConfig& suite, bool quick, const std::string& checkpoint,
                            Monitor& monitor, const Processor& processor) {
  const std::vector<GridCell> grid = grid_of(suite);
  InferenceModel loaded(checkpoint, processor);
  LanguageModel& model = loaded.model();
  if (model.config().vocab < suite.task.vocab)
    fail(ExitCode::usage,
         "{}: the model's vocabulary of {} is smaller than the {} of the suite's task; give a model trained "
         "on it, or --set task.vocab={}",
         loaded.checkpoint_folder(), model.config().vocab, suite.task.vocab, model.config().vocab);
  SuiteResults results = empty_results(suite, quick, grid);
  results.checkpoint = loaded.checkpoint_folder();
  results.planned_models = 1;
  ModelResult result;
  result.name = checkpoint_name(checkpoint);
  result.parameters = model.parameters().count();
  RateResult scores;
  scores.learning_rate = loaded.config().optimizer.lr;
  scores.scores.resize(grid.size());
  double tokens = 0;
  for (const GridCell& cell : grid) {
    result.state_entries.push_back(model.state_entries(cell.spec.length));
    tokens += static_cast<double>(cell.spec.examples * cell.spec.length);
  }
  // Tokens stand for seconds here: only their ratio matters to the bar.
  monitor.expect(tokens, 0);
  for (size_t i = 0; i < grid.size() && monitor.stop() == Stop::none; ++i) {
    const auto slice_done = [&](int64_t examples) {
      const int64_t read = examples * grid[i].spec.length;
      monitor.advance(static_cast<double>(read), read, "reading " + grid[i].name());
      return monitor.stop() == Stop::none;
    };
    CellScore score;
    if (score_cell(model, grid[i], slice_done, score, processor)) scores.scores[i] = score;
  }
  result.rates.push_back(scores);
  if (scores.mean_accuracy() >= 0) results.models.push_back(result);
  return results;
}

std::string checkpoint_name(const std::string& checkpoint) {
  std::filesystem::path path = std::filesystem::absolute(checkpoint).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string last = path.filename().string();
  if (last.starts_with("step-") && path.parent_path().filename() == "checkpoints")
    return path.parent_path().parent_path().filename().string() + "-" + last;
  return last;
}

void write_results(const SuiteResults& results, const std::string& output, const std::string& extra_json) {
  const std::string json =
      to_json(results).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  write_file_atomic(output + "/results.json", json);
  if (!extra_json.empty()) write_file_atomic(extra_json, json);
  write_file_atomic(output + "/report.html", report_html(results));
}

}  // namespace kata
