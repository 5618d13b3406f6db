// From a checked call on tensors to the launcher for its device and element type.
//
// On the CPU an element is float or double; on the GPU float or bf16, with statistics, gates, vector
// parameters and gradients of parameters in Wide<T> (base/dtype.h). Launchers of a GPU take the stream first,
// and return once their work is queued.
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

// cpu.template operator()<T>() or cuda.template operator()<T>(), by the device and the type of the data.
template <class Cpu, class Cuda>
void dispatch(const Context& ctx, DType type, Cpu&& cpu, [[maybe_unused]] Cuda&& cuda) {
  if (ctx.device == Device::cpu) return dispatch_float(type, cpu);
  if constexpr (cuda_build) {
    if (type == DType::bf16) return cuda.template operator()<bf16>();
    if (type == DType::f32) return cuda.template operator()<float>();
  }
  KATA_CHECK(false, "no op for {} on this device", name_of(type));
}

// What differs between the devices, sizes of scratch above all: cpu() or cuda().
template <class Cpu, class Cuda>
auto by_device(const Context& ctx, Cpu&& cpu, [[maybe_unused]] Cuda&& cuda) {
  if constexpr (cuda_build)
    if (ctx.device == Device::cuda) return cuda();
  return cpu();
}

// Typed pointer of a tensor that may be undefined.
template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.as<std::remove_const_t<T>>() : nullptr;
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
