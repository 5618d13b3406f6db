// Tensors with data of their own for bench cases.
#pragma once

#include <vector>

#include "base/tensor.h"

namespace kata {

// Owns its elements; converts to the view that ops take.
template <class T>
class BenchData {
 public:
  BenchData(const Shape& shape, T value)
      : values_(static_cast<size_t>(shape.numel()), value), shape_(shape) {}

  operator Tensor() { return Tensor(values_.data(), dtype_of<T>, shape_); }
  Tensor tensor() { return *this; }
  double bytes() const { return static_cast<double>(values_.size() * sizeof(T)); }
  T& operator[](size_t i) { return values_[i]; }
  size_t size() const { return values_.size(); }

 private:
  std::vector<T> values_;
  Shape shape_;
};

// Floats in (-1, 1), different from element to element, the same in every run.
inline BenchData<float> bench_floats(const Shape& shape) {
  BenchData<float> data(shape, 0);
  uint32_t state = 1;
  for (size_t i = 0; i < data.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    data[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return data;
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
