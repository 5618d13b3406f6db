// A trained model out of a checkpoint, for evaluation and generation: weights only, no gradients.
#pragma once

#include <memory>
#include <string>

#include "config/run_config.h"
#include "nn/language_model.h"

namespace kata {

class InferenceModel {
 public:
  // Computes in fp32; as_trained: on a GPU, in the precision of the model's training.
  enum class Precision { fp32, as_trained };

  // path: a run (its latest checkpoint) or one step folder. ExitCode::data when there is none or it is
  // damaged.
  explicit InferenceModel(const std::string& path, const Processor& processor = {},
                          Precision precision = Precision::fp32);

  const RunConfig& config() const { return config_; }
  LanguageModel& model() { return *model_; }
  const Processor& processor() const { return processor_; }
  const std::string& checkpoint_folder() const { return folder_; }
  int64_t step() const { return step_; }

 private:
  void send_to_gpu(const Tensor& values);

  RunConfig config_;
  Processor processor_;
  std::string folder_;
  int64_t step_ = 0;
  std::unique_ptr<LanguageModel> model_;
  Arena memory_, gpu_memory_;  // the parameters are in one of them
};

}  // namespace kata
