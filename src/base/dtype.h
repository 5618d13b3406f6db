// Element types of tensors and files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/error.h"

namespace kata {

enum class DType : uint8_t { f32, f64, bf16, i32, i64, u16, u8 };

// The upper half of a float: 8 bits of exponent, 7 of mantissa. Storage on the GPU; the CPU only converts
// (base/bf16.h). No initialiser: nvcc 13.0 would leave arrays of arrays of it without one under `= {}`.
struct bf16 {
  uint16_t bits;
};

// The type of what must not be rounded to 16 bits: statistics (row scales, masses), gates, vector
// parameters and the gradients of all parameters.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
constexpr DType wide(DType type) {
  return type == DType::bf16 ? DType::f32 : type;
}

constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::u16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::i32:
      return "int32";
    case DType::i64:
      return "int64";
    case DType::u16:
      return "uint16";
    case DType::u8:
      return "uint8";
  }
  return "?";
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace kata
