// A model being trained: its parameters, gradients and moments in flat buffers, its activations in a planned
// arena, all in the memory of the processor that computes.
//
// The step is split where a trainer needs to look: gradients(batch), then update(rate). On a GPU the first is
// in two parts, between which the host is free: start(batch), finish(). Nothing here reads files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"
#include "config/train_config.h"
#include "data/batch.h"
#include "nn/language_model.h"
#include "train/gpu_step.h"

namespace kata {

// What a run holds at its peak, known before anything is allocated.
struct MemoryPlan {
  size_t parameters = 0, gradients = 0, moments = 0, activations = 0;  // bytes
  size_t batch = 0;              // on a GPU: the ids of a batch, and the workspace of the matrix products
  std::string activation_table;  // by name, at the peak

  size_t total() const { return parameters + gradients + moments + activations + batch; }
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
size_t plan_evaluation(LanguageModel& model, const std::vector<BatchShape>& shapes, int64_t max_tokens,
                       const Processor& processor);
Evaluation evaluate(LanguageModel& model, BatchSource& source, int64_t batches, int64_t max_tokens,
                    Context& ctx);

class Learner {
 public:
  // shapes: every batch shape that gradients() will see; evaluated: that evaluate() will see.
  // ExitCode::device when the memory cannot be had.
  Learner(const ModelConfig& model, const TrainConfig& train, const OptimizerConfig& optimizer,
          const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated,
          const Processor& processor = {});

  static MemoryPlan plan(const ModelConfig& model, const TrainConfig& train,
                         const std::vector<BatchShape>& shapes, const std::vector<BatchShape>& evaluated,
                         const Processor& processor = {});

  // Mean loss over the batch's scored tokens, whose gradient replaces the old one. ExitCode::data when the
  // batch scores nothing.
  double gradients(Batch& batch);
  void start(Batch& batch);  // the batch may be filled anew afterwards
  double finish();
  double gradient_norm();
  // Clips by the given norm and applies AdamW.
  void update(double rate, double norm);
  Evaluation evaluate(BatchSource& source, int64_t batches);

  LanguageModel& model() { return model_; }
  const MemoryPlan& memory() const { return plan_; }
  size_t activation_peak() const { return activations_.peak(); }
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  // As they are now, in host memory, until the next call of the same function.
  std::vector<std::pair<std::string, Tensor>> weights();  // by parameter name
  std::vector<std::pair<std::string, Tensor>> moments();  // "first.<name>", "second.<name>"
  // Goes on from what was written into the tensors of weights() and moments().
  void take_over();

 private:
  bool on_gpu() const { return processor_.device == Device::cuda; }
  Context context() { return {activations_, processor_}; }
  void compute(const Tensor& inputs, const Tensor& targets, const Tensor& starts, double scale,
               const Tensor& losses, int64_t scored_bound);
  void adamw_range(double rate, double gradient_scale, int64_t begin, int64_t end, double decay);
  Tensor host_copy(Arena& memory, const Tensor& flat) const;

  TrainConfig train_;
  OptimizerConfig optimizer_;
  Processor processor_;
  MemoryPlan plan_;
  LanguageModel model_;
  Arena persistent_, activations_;
  Arena host_weights_, host_moments_;  // of a model on a GPU, once they are asked for
  Tensor first_moment_, second_moment_;
  std::unique_ptr<GpuStep> gpu_step_;
  int64_t evaluation_tokens_;
  int64_t scored_ = 0;  // tokens of the batch
  double loss_sum_ = 0, gpu_norm_ = 0;
  int64_t updates_ = 0;  // AdamW steps taken, skipped ones not counted
};

}  // namespace kata
