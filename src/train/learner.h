// A model being trained: its parameters, gradients and moments in flat buffers, its activations in a planned
// arena.
//
// The step is split where a trainer needs to look: gradients(batch), then update(rate). Nothing here reads
// files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "config/train_config.h"
#include "data/batch.h"
#include "nn/language_model.h"

namespace kata {

// What a run holds at its peak, known before anything is allocated.
struct MemoryPlan {
  size_t parameters = 0, gradients = 0, moments = 0, activations = 0;  // bytes
  std::string activation_table;                                        // by name, at the peak

  size_t total() const { return parameters + gradients + moments + activations; }
  std::string text() const;  // the lines that --dry-run prints
};

struct Evaluation {
  double loss_sum = 0;              // nats, over scored tokens
  int64_t tokens = 0;               // scored
  int64_t correct = 0;              // predictions that equal the target
  double example_accuracy_sum = 0;  // per row, the fraction of its scored tokens that are right
  int64_t examples = 0;             // rows with at least one scored token

  double loss() const { return loss_sum / static_cast<double>(tokens); }
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(tokens); }
};

// Reads batches 0 .. batches - 1 (0: an epoch), in slices of at most max_tokens tokens (at least a row), from
// an arena that plan_evaluation sized.
size_t plan_evaluation(LanguageModel& model, const std::vector<BatchShape>& shapes, int64_t max_tokens);
Evaluation evaluate(LanguageModel& model, BatchSource& source, int64_t batches, int64_t max_tokens,
                    Arena& arena);

class Learner {
 public:
  // shapes: every batch shape that gradients() will see; evaluated: that evaluate() will see.
  // ExitCode::device when the memory cannot be had.
  Learner(const ModelConfig& model, const TrainConfig& train, const OptimizerConfig& optimizer,
          const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated);

  static MemoryPlan plan(const ModelConfig& model, const TrainConfig& train,
                         const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated);

  // Mean loss over the batch's scored tokens, whose gradient replaces the old one. ExitCode::data when the
  // batch scores nothing.
  double gradients(Batch& batch);
  double gradient_norm();
  // Clips by the given norm and applies AdamW.
  void update(double rate, double norm);
  Evaluation evaluate(BatchSource& source, int64_t batches);

  LanguageModel& model() { return model_; }
  const MemoryPlan& memory() const { return plan_; }
  size_t activation_peak() const { return activations_.peak(); }
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  std::vector<std::pair<std::string, Tensor>> weights();  // by parameter name
  std::vector<std::pair<std::string, Tensor>> moments();  // "first.<name>", "second.<name>"

 private:
  void adamw_range(double rate, double gradient_scale, int64_t begin, int64_t end, double decay);

  TrainConfig train_;
  OptimizerConfig optimizer_;
  MemoryPlan plan_;
  LanguageModel model_;
  Arena persistent_, activations_;
  Tensor first_moment_, second_moment_;
  int64_t evaluation_tokens_;
  int64_t updates_ = 0;  // AdamW steps taken, skipped ones not counted
};

}  // namespace kata
