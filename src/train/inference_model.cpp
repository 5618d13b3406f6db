#include "train/inference_model.h"

#include "train/checkpoint.h"

namespace kata {

InferenceModel::InferenceModel(const std::string& path, const Processor& processor) : processor_(processor) {
  const Checkpoint checkpoint = open_checkpoint(path);
  folder_ = checkpoint.folder();
  step_ = checkpoint.step();
  config_ = load_run_config(folder_ + "/config.yaml", {});
  model_ = std::make_unique<LanguageModel>(config_.model, DType::f32);
  Parameters& parameters = model_->parameters();
  const Shape flat{parameters.count()};
  memory_ = Arena(static_cast<size_t>(parameters.count()) * size_of(DType::f32));
  const Tensor values = memory_.take("parameters", DType::f32, flat);
  checkpoint.read_tensors("model.safetensors", parameters.named(values));
  if (processor.device == Device::cuda) {
    gpu_memory_ = Arena(values.bytes(), Arena::Memory::gpu);
    const Tensor there = gpu_memory_.take("parameters", DType::f32, flat);
    processor.gpu->upload(there.data(), values.data(), values.bytes());
    processor.gpu->synchronise();
    memory_ = Arena();
    parameters.bind(there, {});
  } else {
    parameters.bind(values, {});
  }
}

}  // namespace kata
