// Tensors with data of their own for bench cases, where and as what the cases compute: float on the CPU,
// float or bf16 on a GPU.
#pragma once

#include <memory>
#include <vector>

#include "base/bf16.h"
#include "base/context.h"

namespace kata {

// Of the whole program, chosen before any case runs.
struct BenchTarget {
  Processor processor;
  DType element = DType::f32;  // of activations and weights

  bool gpu() const { return processor.device == Device::cuda; }
};
inline BenchTarget& bench_target() {
  static BenchTarget target;
  return target;
}

// Owns its numbers in host memory, and on a GPU the tensor made of them; converts to the view that ops take.
template <class T>
class BenchData {
 public:
  BenchData(const Shape& shape, T value, bool is_wide = false)
      : values_(static_cast<size_t>(shape.numel()), value), shape_(shape), wide_(is_wide) {}
  BenchData(const BenchData& other) : values_(other.values_), shape_(other.shape_), wide_(other.wide_) {}
  BenchData(BenchData&&) = default;

  operator Tensor() {
    if (!bench_target().gpu()) return Tensor(values_.data(), dtype_of<T>, shape_);
    if (!device_) upload();
    return Tensor(device_.get(), element(), shape_);
  }
  Tensor tensor() { return *this; }
  // In host memory, before the first use as a tensor.
  T* host() { return values_.data(); }
  T& operator[](size_t i) { return values_[i]; }
  size_t size() const { return values_.size(); }
  double bytes() const { return static_cast<double>(values_.size() * size_of(element())); }

 private:
  DType element() const { return std::is_same_v<T, float> && !wide_ ? bench_target().element : dtype_of<T>; }
  void upload() {
    const Gpu& gpu = *bench_target().processor.gpu;
    device_ = device_memory(static_cast<size_t>(bytes()));
    if (!device_)
      fail(ExitCode::device, "out of memory on the GPU: a case needs {}",
           human_bytes(static_cast<size_t>(bytes())));
    if constexpr (std::is_same_v<T, float>) {
      if (element() == DType::bf16) {
        std::vector<bf16> rounded(values_.size());
        for (size_t i = 0; i < values_.size(); ++i) rounded[i] = to_bf16(values_[i]);
        gpu.upload(device_.get(), rounded.data(), rounded.size() * sizeof(bf16));
        gpu.synchronise();
        return;
      }
    }
    gpu.upload(device_.get(), values_.data(), values_.size() * sizeof(T));
    gpu.synchronise();
  }

  std::vector<T> values_;
  Shape shape_;
  bool wide_;  // statistics, gates, vector parameters, gradients of parameters: float beside bf16
  std::unique_ptr<void, FreeDevice> device_;
};

// Floats in (-1, 1), different from element to element, the same in every run.
inline BenchData<float> bench_floats(const Shape& shape, bool is_wide = false) {
  BenchData<float> data(shape, 0, is_wide);
  uint32_t state = 1;
  for (size_t i = 0; i < data.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return data;
}
inline BenchData<float> bench_wide(const Shape& shape) {
  return bench_floats(shape, true);
}

// Ids in [0, vocab).
inline BenchData<int32_t> bench_ids(int64_t rows, int64_t vocab) {
  BenchData<int32_t> data({rows}, 0);
  uint32_t state = 1;
  for (size_t i = 0; i < data.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab));
  }
  return data;
}

}  // namespace kata
