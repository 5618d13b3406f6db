// Attention calls as Hopper's kernels take them (kernels/sm90/attention.h).
#pragma once

#include "kernels/sm90/attention.h"
#include "ops/token_heads.h"

namespace kata::cuda {

inline sm90::Size hopper_size(const AttentionSize& size) {
  return {size.batch, size.tokens, size.heads, size.kv_heads, size.width, size.value_width};
}
template <class T>
sm90::View<T> hopper_view(const TokenHeads<T>& x) {
  return {x.data, x.batch, x.token, x.head};
}

// Whether they take a call of this size on these views, on the current device.
template <class... T>
bool on_hopper(const AttentionSize& size, const TokenHeads<T>&... views) {
  return sm90::supports(hopper_size(size)) && (sm90::supports(hopper_view(views)) && ...) &&
         sm90::available();
}

// Floats of a backward pass: the larger of what it needs here and there.
inline int64_t backward_scratch(int64_t portable, const AttentionSize& size) {
  if (!sm90::supports(hopper_size(size))) return portable;
  const int64_t bytes = sm90::attention_backward_scratch(hopper_size(size));
  return std::max(portable, bytes / int64_t{sizeof(float)} + 1);
}

}  // namespace kata::cuda
