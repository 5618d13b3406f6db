// A tensor view: pointer, element type, shape and strides. It owns nothing and copies like a pointer.
//
// Rank 0 to 4, row-major; the last dimension always has stride 1, so that a view of columns (one head, or
// the q part of a fused projection) is a view and not a copy. A null pointer is legal: the planning pass
// (base/arena.h) runs the whole step on null tensors to learn the memory that it takes.
#pragma once

#include <array>
#include <initializer_list>
#include <string>

#include "base/dtype.h"

namespace kata {

class Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const;    // product, 1 for rank 0; overflow of 2^63 is an internal error
  std::string str() const;  // "[8192, 128]"
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, max_rank> dims_{};
  int rank_ = 0;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, const Shape& shape);  // contiguous

  template <class T>
  T* as() const {  // typed pointer; a wrong type is an internal error
    KATA_CHECK(dtype_ == dtype_of<T>, "tensor {} is {}, read as {}", shape_.str(), name_of(dtype_),
               name_of(dtype_of<T>));
    return static_cast<T*>(data_);
  }
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t stride(int i) const { return strides_[static_cast<size_t>(i)]; }
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return static_cast<size_t>(numel()) * size_of(dtype_); }
  bool contiguous() const;
  bool defined() const { return shape_.rank() > 0; }  // false for a default-constructed tensor

  Tensor view(const Shape& shape) const;             // same elements, contiguous tensors only
  Tensor rows(int64_t begin, int64_t end) const;     // [begin, end) of the first dimension
  Tensor columns(int64_t begin, int64_t end) const;  // [begin, end) of the last dimension
  // The last dimension [.., heads * width] split in two, for strided tensors as well: rank + 1.
  Tensor split_last(int64_t outer, int64_t inner) const;
  // [rows, width] as [rows, n, width]: each row n times, with a stride of 0. For reading.
  Tensor repeat(int64_t n) const;
  // The first dimension [outer * inner, ..] split in two.
  Tensor split_first(int64_t outer, int64_t inner) const;

 private:
  void* offset(int64_t elements) const;

  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
  std::array<int64_t, Shape::max_rank> strides_{};
};

}  // namespace kata
