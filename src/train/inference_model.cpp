#include "train/inference_model.h"

#include "train/checkpoint.h"

namespace kata {

InferenceModel::InferenceModel(const std::string& path) {
  const Checkpoint checkpoint = open_checkpoint(path);
  folder_ = checkpoint.folder();
  step_ = checkpoint.step();
  config_ = load_run_config(folder_ + "/config.yaml", {});
  model_ = std::make_unique<LanguageModel>(config_.model, DType::f32);
  Parameters& parameters = model_->parameters();
  const Shape flat{parameters.count()};
  memory_ = Arena(static_cast<size_t>(parameters.count()) * size_of(DType::f32));
  parameters.bind(memory_.take("parameters", DType::f32, flat), {});
  checkpoint.read_tensors("model.safetensors", parameters.named(parameters.values()));
}

}  // namespace kata
