// One model at one learning rate: trained once, read over the grid, kept in a folder.
//
// The folder is a run: its checkpoint can be handed to any program. A training that was stopped goes on where
// it was, and gives the bits of one that was not.
#pragma once

#include <string>

#include "eval/cell_record.h"
#include "eval/cost.h"
#include "eval/monitor.h"
#include "eval/results.h"
#include "tasks/example_source.h"

namespace kata {

class Cell {
 public:
  // Looks at what cells_folder holds of it. Anything damaged there is a warning and counts as absent.
  Cell(const SuiteConfig& suite, const SuiteModel& model, double learning_rate,
       const std::string& cells_folder, const Processor& processor);

  const std::string& label() const { return label_; }  // "kata_m1 lr 0.003"
  const std::string& folder() const { return folder_; }
  int64_t step() const { return step_; }  // of training, done
  bool trained() const { return failed() || step_ == run_.train.steps; }
  bool failed() const { return !record_.trouble.empty(); }
  bool has(const ExampleSpec& spec) const { return record_.find(spec) != nullptr; }

  // Trains to the end or until the monitor says stop; what was done is saved in both cases.
  void train(ExampleSource& source, const StepOrder& order, const ModelCost& cost, Monitor& monitor);
  // Reads the cells without a score, each saved when it is finished.
  void read(const std::vector<GridCell>& grid, const ModelCost& cost, Monitor& monitor);

  RateResult result(const std::vector<GridCell>& grid) const;

 private:
  struct Training;

  void open_checkpoint_folder();
  void save(Training& training);
  void fail_training(const std::string& why);

  RunConfig run_;
  Processor processor_;
  std::string label_, folder_;
  CellRecord record_;
  int64_t step_ = 0;
  double train_seconds_ = 0, train_loss_ = 0;
  std::string commit_;  // that trained it
};

}  // namespace kata
