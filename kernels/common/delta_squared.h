// The delta rule of squared scores without states (kernels/delta_attention_quadratic.cu).
#pragma once

#include "ops/delta_attention.h"

namespace kata::cuda {

// psd with 1, 2 or 4 groups, rows and values of 64; a length at which this is faster than states. In bf16,
// from the empty state, and without the last one.
inline bool suits_squared(const FeatureMap& map, const AttentionSize& size) {
  return map.kind == MapKind::psd && map.sigma() == 1 && map.width == 64 && size.value_width == 64 &&
         (map.groups == 1 || map.groups == 2 || map.groups == 4) && size.tokens <= 16384;
}
int64_t delta_squared_scratch(bool backward, const AttentionSize&);
void delta_squared_forward(GpuStream, const DeltaForward<bf16>&, const FeatureMap&, const AttentionSize&);
void delta_squared_backward(GpuStream, const DeltaBackward<bf16>&, const FeatureMap&, const AttentionSize&);

}  // namespace kata::cuda
