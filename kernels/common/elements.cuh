// Elements of tensors inside kernels: loads, stores and conversion to float, one or several at a time.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>

#include "base/dtype.h"

namespace kata::cuda {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, bf16>)
    return bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  else
    return x;
}

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

// x = N elements from p on, which is aligned to all of them.
template <int N, class T>
__device__ __forceinline__ void load(float (&x)[N], const T* p) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = to_float(pack.at[i]);
}

template <int N, class T>
__device__ __forceinline__ void store(T* p, const float (&x)[N]) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = from_float<T>(x[i]);
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

// Elements of a 16-byte access.
template <class T>
inline constexpr int full_pack = 16 / static_cast<int>(sizeof(T));

// True where every pointer and every stride (in elements of T) allows 16-byte accesses.
template <class T>
bool packs(std::initializer_list<const void*> pointers, std::initializer_list<int64_t> strides) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  for (const int64_t s : strides)
    if (s % full_pack<T> != 0) return false;
  return true;
}

}  // namespace kata::cuda
