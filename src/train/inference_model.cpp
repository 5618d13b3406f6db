#include "train/inference_model.h"

#include "base/bf16.h"
#include "train/checkpoint.h"

namespace kata {

InferenceModel::InferenceModel(const std::string& path, const Processor& processor, Precision precision)
    : processor_(processor) {
  const Checkpoint checkpoint = open_checkpoint(path);
  folder_ = checkpoint.folder();
  step_ = checkpoint.step();
  config_ = load_checkpoint_config(folder_);
  const bool on_gpu = processor.device == Device::cuda;
  const bool in_16_bits = on_gpu && precision == Precision::as_trained && config_.train.precision == "bf16";
  model_ = std::make_unique<LanguageModel>(config_.model, in_16_bits ? DType::bf16 : DType::f32);
  Parameters& parameters = model_->parameters();
  memory_ = Arena(static_cast<size_t>(parameters.count()) * size_of(DType::f32));
  const Tensor values = memory_.take("parameters", DType::f32, {parameters.count()});
  checkpoint.read_tensors("model.safetensors", parameters.named(values));
  if (on_gpu) {
    send_to_gpu(values);
    memory_ = Arena();
  } else {
    parameters.bind(values, {});
  }
}

void InferenceModel::send_to_gpu(const Tensor& values) {
  Parameters& parameters = model_->parameters();
  const int64_t rounded = parameters.has_copy() ? parameters.decayed_count() : 0;
  const size_t copy_bytes = static_cast<size_t>(rounded) * size_of(DType::bf16);
  gpu_memory_ = Arena(values.bytes() + copy_bytes + 2 * Arena::alignment, Arena::Memory::gpu);
  const Tensor there = gpu_memory_.take("parameters", DType::f32, values.shape());
  processor_.gpu->upload(there.data(), values.data(), values.bytes());
  Tensor copy;
  const std::vector<bf16> halves = rounded_to_bf16(values.as<float>(), rounded);
  if (parameters.has_copy()) {
    copy = gpu_memory_.take("parameters in 16 bits", DType::bf16, {rounded});
    processor_.gpu->upload(copy.data(), halves.data(), copy.bytes());
  }
  processor_.gpu->synchronise();
  parameters.bind(there, {}, copy);
}

}  // namespace kata
