#include "base/tensor.h"

namespace kata {

Shape::Shape(std::initializer_list<int64_t> dims) {
  KATA_CHECK(dims.size() <= static_cast<size_t>(max_rank), "rank {} is above {}", dims.size(), max_rank);
  for (int64_t d : dims) {
    KATA_CHECK(d >= 0, "negative dimension {}", d);
    dims_[static_cast<size_t>(rank_++)] = d;
  }
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) {
    const bool overflow = __builtin_mul_overflow(n, (*this)[i], &n);
    KATA_CHECK(!overflow, "shape {} has more than 2^63 elements", str());
  }
  return n;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i)
    if ((*this)[i] != other[i]) return false;
  return true;
}

Tensor::Tensor(void* data, DType dtype, const Shape& shape) : data_(data), dtype_(dtype), shape_(shape) {
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides_[static_cast<size_t>(i)] = stride;
    stride *= shape[i];
  }
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (dim(i) != 1 && stride(i) != expected) return false;
    expected *= dim(i);
  }
  return true;
}

void* Tensor::offset(int64_t elements) const {
  if (data_ == nullptr) return nullptr;
  return static_cast<char*>(data_) + elements * static_cast<int64_t>(size_of(dtype_));
}

Tensor Tensor::view(const Shape& shape) const {
  KATA_CHECK(contiguous(), "view of a strided tensor {}", shape_.str());
  KATA_CHECK(shape.numel() == numel(), "view of {} as {}", shape_.str(), shape.str());
  return Tensor(data_, dtype_, shape);
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  KATA_CHECK(rank() >= 1 && begin >= 0 && begin <= end && end <= dim(0), "rows {}..{} of {}", begin, end,
             shape_.str());
  Tensor out = *this;
  out.data_ = offset(begin * stride(0));
  out.shape_[0] = end - begin;
  return out;
}

Tensor Tensor::columns(int64_t begin, int64_t end) const {
  KATA_CHECK(rank() >= 1 && begin >= 0 && begin <= end && end <= dim(rank() - 1), "columns {}..{} of {}",
             begin, end, shape_.str());
  Tensor out = *this;
  out.data_ = offset(begin);
  out.shape_[rank() - 1] = end - begin;
  return out;
}

Tensor Tensor::split_last(int64_t outer, int64_t inner) const {
  const int last = rank() - 1;
  KATA_CHECK(rank() >= 1 && rank() < Shape::max_rank && dim(last) == outer * inner,
             "split of the last of {} into {} x {}", shape_.str(), outer, inner);
  Shape shape;
  switch (rank()) {
    case 1:
      shape = {outer, inner};
      break;
    case 2:
      shape = {dim(0), outer, inner};
      break;
    default:
      shape = {dim(0), dim(1), outer, inner};
      break;
  }
  Tensor out(data_, dtype_, shape);
  for (int i = 0; i < last; ++i) out.strides_[static_cast<size_t>(i)] = stride(i);
  return out;
}

Tensor Tensor::repeat(int64_t n) const {
  KATA_CHECK(rank() == 2, "repeat of {}", shape_.str());
  Tensor out(data_, dtype_, {dim(0), n, dim(1)});
  out.strides_[0] = stride(0);
  out.strides_[1] = 0;
  return out;
}

Tensor Tensor::split_first(int64_t outer, int64_t inner) const {
  KATA_CHECK(rank() >= 1 && rank() < Shape::max_rank && dim(0) == outer * inner,
             "split of the first of {} into {} x {}", shape_.str(), outer, inner);
  Shape shape;
  switch (rank()) {
    case 1:
      shape = {outer, inner};
      break;
    case 2:
      shape = {outer, inner, dim(1)};
      break;
    default:
      shape = {outer, inner, dim(1), dim(2)};
      break;
  }
  Tensor out(data_, dtype_, shape);
  for (int i = 0; i < rank(); ++i) out.strides_[static_cast<size_t>(i + 1)] = stride(i);
  out.strides_[0] = stride(0) * inner;
  return out;
}

}  // namespace kata
