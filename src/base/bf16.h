// Conversion between float and its upper half on the CPU: to the nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "base/dtype.h"
#include "base/parallel.h"

namespace kata {

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

inline bf16 to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

// The host's copy of weights in 16 bits.
inline std::vector<bf16> rounded_to_bf16(const float* x, int64_t n) {
  std::vector<bf16> rounded(static_cast<size_t>(n));
  parallel_blocks(n, 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) rounded[static_cast<size_t>(i)] = to_bf16(x[i]);
  });
  return rounded;
}

}  // namespace kata
