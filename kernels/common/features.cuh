// Features of the linear mixers on the GPU: lifted rows u, single features of u, and their adjoints.
//
// A row x of q or k is lifted to u = sqrt(sigma) f(x) for the first-order maps and to u = sqrt(sigma) x for
// the psd family, whose features are sums of products of two entries of u. Hermitian and quaternionic rows
// are reordered by the lift: all real parts first, then all i parts, and so on. Since u carries sqrt(sigma),
// a score is a plain dot product of u, or a sum of squared ones.
#pragma once

#include <cmath>

#include "kernels/common/elements.cuh"
#include "kernels/common/reduce.cuh"
#include "ops/feature_map.h"
#include "ops/token_heads.h"

namespace kata::cuda {

// The row of (batch row, token, head).
template <class T>
__device__ __forceinline__ T* head_row(const TokenHeads<T>& x, int64_t b, int64_t t, int64_t h) {
  return x.data + b * x.batch + t * x.token + h * x.head;
}

struct DeviceMap {
  MapKind kind;
  int width, parts, part, features;
  bool first_order, complex;  // complex: quaternionic too
  float root;                 // sqrt(sigma)
};

inline DeviceMap device_map(const FeatureMap& map) {
  // Columns of packed features are kept in 10 bits.
  KATA_CHECK(map.width <= 1024, "a map of width {}", map.width);
  return {map.kind,
          static_cast<int>(map.width),
          static_cast<int>(map.parts()),
          static_cast<int>(map.part()),
          static_cast<int>(map.features()),
          map.first_order(),
          map.kind == MapKind::hermitian || map.kind == MapKind::quaternionic,
          static_cast<float>(std::sqrt(map.sigma()))};
}

// Sign of part p of the product of a number z with the unit e_c of {1, i, j, k}; the part comes from part
// p ^ c of z. A set bit 4 c + p is a minus.
__device__ __forceinline__ float sign_times_unit(int c, int p) {  // z e_c
  return (0x5390u >> (4 * c + p)) & 1u ? -1.f : 1.f;
}
__device__ __forceinline__ float sign_unit_times(int c, int p) {  // e_c z
  return (0x3950u >> (4 * c + p)) & 1u ? -1.f : 1.f;
}

// A packed feature: the product of entries a and b <= a of a part, and the group or component it is in.
struct FeatureEntry {
  int a, b, block;
};
__device__ __forceinline__ FeatureEntry feature_entry(const DeviceMap& map, int p) {
  if (map.first_order) return {p, p, 0};
  const int strict = map.part * (map.part - 1) / 2, packed = strict + map.part;
  int block = 0, r = p;
  if (map.kind == MapKind::psd) {
    block = p / packed;
    r = p % packed;
  } else if (p >= packed) {
    block = 1 + (p - packed) / strict;
    r = map.part + (p - packed) % strict;
  }
  if (r < map.part) return {r, r, block};
  r -= map.part;
  int a = static_cast<int>((1.f + sqrtf(1.f + 8.f * static_cast<float>(r))) * 0.5f);
  while (a * (a - 1) / 2 > r) --a;
  while (a * (a + 1) / 2 <= r) ++a;
  return {a, r - a * (a - 1) / 2, block};
}
// In one word, for tables in shared memory.
__device__ __forceinline__ unsigned packed_entry(const FeatureEntry& e) {
  return static_cast<unsigned>(e.a) | static_cast<unsigned>(e.b) << 10 | static_cast<unsigned>(e.block) << 20;
}
__device__ __forceinline__ FeatureEntry unpacked_entry(unsigned x) {
  return {static_cast<int>(x & 1023u), static_cast<int>(x >> 10 & 1023u), static_cast<int>(x >> 20)};
}

// body(column of a, column of b, factor) for every product of two entries of u in a feature of the psd family
template <class Body>
__device__ __forceinline__ void for_each_product(const DeviceMap& map, const FeatureEntry& e, Body&& body) {
  const float factor = e.a == e.b ? 1.f : 1.41421356237309505f;
  if (map.kind == MapKind::psd) return body(e.block * map.part + e.a, e.block * map.part + e.b, factor);
  for (int i = 0; i < map.parts; ++i) {
    if (map.complex)
      body(i * map.part + e.a, (i ^ e.block) * map.part + e.b, factor * sign_unit_times(e.block, i));
    else
      body(i * map.part + e.a, i * map.part + e.b, factor);
  }
}

// The feature of the row whose entry in column i is u[i * stride].
__device__ __forceinline__ float feature_of(const DeviceMap& map, const FeatureEntry& e, const float* u,
                                            int stride) {
  if (map.first_order) return u[e.a * stride];
  float sum = 0;
  for_each_product(map, e,
                   [&](int a, int b, float factor) { sum += factor * u[a * stride] * u[b * stride]; });
  return sum;
}

// Column of u that element i of x goes to.
__device__ __forceinline__ int lifted_column(const DeviceMap& map, int i) {
  return map.complex ? i % map.parts * map.part + i / map.parts : i;
}

// |h| of a row of lorentz, by a whole warp; 0 for other maps.
template <class T>
__device__ __forceinline__ float lorentz_norm(const DeviceMap& map, const T* x, int lane) {
  if (map.kind != MapKind::lorentz) return 0;
  float sum = 0;
  for (int i = lane; i < map.width - 1; i += 32) sum += to_float(x[i]) * to_float(x[i]);
  return sqrtf(lane_sum<32>(sum));
}

// u[i * stride] = the lifted row x, by a whole warp.
template <class T>
__device__ __forceinline__ void lift_row(float* u, int stride, const T* x, const DeviceMap& map, int lane) {
  const float norm = lorentz_norm(map, x, lane);
  for (int i = lane; i < map.width; i += 32) {
    float value = to_float(x[i]);
    if (map.kind == MapKind::orthant) value = (value < 0 ? 0.f : value) + 1e-6f;  // NaN stays NaN
    if (map.kind == MapKind::lorentz && i == map.width - 1) value = norm * (1 + value * value);
    u[lifted_column(map, i) * stride] = map.root * value;
  }
}

// dx = what the gradient du[i * stride] of the lifted row passes back, by a whole warp.
template <class T>
__device__ __forceinline__ void lift_row_backward(T* dx, const float* du, int stride, const T* x,
                                                  const DeviceMap& map, int lane) {
  const float norm = lorentz_norm(map, x, lane);
  const bool lorentz = map.kind == MapKind::lorentz;
  const float tau = lorentz ? to_float(x[map.width - 1]) : 0.f;
  const float last = lorentz ? map.root * du[(map.width - 1) * stride] : 0.f;
  const float scale = norm > 0 ? last * (1 + tau * tau) / norm : 0.f;
  for (int i = lane; i < map.width; i += 32) {
    float value = map.root * du[lifted_column(map, i) * stride];
    if (map.kind == MapKind::orthant && !(to_float(x[i]) > 0)) value = 0;
    if (lorentz) value = i == map.width - 1 ? last * norm * 2 * tau : value + scale * to_float(x[i]);
    dx[i] = from_float<T>(value);
  }
}

}  // namespace kata::cuda
