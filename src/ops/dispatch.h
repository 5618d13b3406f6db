// From a checked call on tensors to the launcher for its device and element type.
#pragma once

#include "base/context.h"

namespace kata {

// f.template operator()<T>() with T = float or double, by the element type of the data.
template <class F>
void dispatch_float(DType type, F&& f) {
  switch (type) {
    case DType::f32:
      f.template operator()<float>();
      return;
    case DType::f64:
      f.template operator()<double>();
      return;
    default:
      KATA_CHECK(false, "no floating-point op for {}", name_of(type));
  }
}

// The checks that open every op: rank and shape are the caller's contract, so a fault here is ours.
inline void require_shape(const char* op, const char* name, const Tensor& t, const Shape& shape,
                          DType dtype) {
  KATA_CHECK(t.shape() == shape && t.dtype() == dtype, "{}: {} is {} {}, expected {} {}", op, name,
             name_of(t.dtype()), t.shape().str(), name_of(dtype), shape.str());
}
inline void require_contiguous(const char* op, const char* name, const Tensor& t) {
  KATA_CHECK(t.contiguous(), "{}: {} {} must be contiguous", op, name, t.shape().str());
}
inline void require(const char* op, const char* name, const Tensor& t, const Shape& shape, DType dtype) {
  require_shape(op, name, t, shape, dtype);
  require_contiguous(op, name, t);
}

}  // namespace kata
