// What a suite found: per model and learning rate a score per cell of the grid; as a table and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/grid.h"

namespace kata {

struct RateResult {  // one trained model
  double learning_rate = 0;
  std::string trouble;                  // why its training ended without a usable model; empty = it did not
  std::optional<double> train_seconds;  // unknown for a checkpoint
  std::optional<double> train_loss;     // of the last step
  std::string commit;                   // of the program that trained it, where known
  std::vector<std::optional<CellScore>> scores;  // per cell; none = not read yet

  bool complete() const;         // every cell has its score, or the training failed for good
  double mean_accuracy() const;  // the headline's, over the cells that have a score; -1 without one
};

struct ModelResult {
  std::string name;
  int64_t parameters = 0;
  std::vector<int64_t> state_entries;  // per cell, after a sequence of its length
  std::vector<RateResult> rates;

  // The rate with the best mean accuracy over the grid (the first of equals), complete ones before others;
  // null where nothing was scored.
  const RateResult* best() const;
  bool complete() const;
};

struct SuiteResults {
  SuiteConfig suite;
  bool quick = false;
  std::string checkpoint;  // the folder that was evaluated; empty = models trained by the suite
  std::vector<GridCell> grid;
  std::vector<ModelResult> models;  // those with anything to show, in the order of the config
  int64_t planned_models = 0;
  std::string commit;
  std::string date;  // UTC, ISO 8601

  bool complete() const;
  std::string title() const;  // "mqar --quick"
};

// Strict JSON; a number that is not finite is null.
nlohmann::ordered_json to_json(const SuiteResults& results);

// The table as text cells: the first row names the columns, the first column the models. `notes` say what the
// columns mean.
struct ResultTable {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;
};
ResultTable result_table(const SuiteResults& results);
std::string table_text(const ResultTable& table);

std::string utc_now();

}  // namespace kata
