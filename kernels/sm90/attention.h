// Causal attention on Hopper, bf16, 64 wide: the quadratic forms of ops/softmax_attention.h and, for the psd
// maps, ops/linear_attention.h (normalised read, no decay, no documents), as matrix products of warpgroups.
//
// Sums of fp32 in a fixed order. The weights are rounded to bf16 for the product with v, the mass is not.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/gpu.h"

namespace kata::cuda::sm90 {

// psd1, psd2, psd4: the sum over 1, 2, 4 groups of (scale <q_i, k_i>)^2.
enum class Score { softmax, psd1, psd2, psd4 };

// A view [batch, token, head, 64]: strides in elements, the last one is 1.
template <class T>
struct View {
  T* data = nullptr;
  int64_t batch = 0, token = 0, head = 0;
};

// Query head h reads key and value head h / (heads / kv_heads).
struct Size {
  int64_t batch = 0, tokens = 0;
  int64_t heads = 0, kv_heads = 0;       // of q and o; of k and v
  int64_t width = 64, value_width = 64;  // of q and k; of v and o
};

struct AttentionForward {
  View<bf16> o;
  float* statistic;  // [B, T, Hq]: log of the sum of exponentials (softmax), or the mass
  View<const bf16> q, k, v;
};

struct AttentionBackward {
  View<bf16> dq, dk, dv;
  View<const bf16> d_o, q, k, v, o;
  const float* statistic;  // of the forward pass
  void* scratch;           // attention_backward_scratch bytes, on a multiple of 128
};

// Whether the current device has these kernels' instructions; asked of it once.
bool available();

// Shapes and views that the kernels take; scale > 0.
bool supports(const Size&);
template <class T>
bool supports(const View<T>& x) {  // copies are of 16 bytes
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % 8 == 0 && x.token % 8 == 0 &&
         x.head % 8 == 0;
}

// Without a device that is `available` nothing is launched.
template <Score score>
void attention_forward(GpuStream, const AttentionForward&, float scale, const Size&);
template <Score score>
void attention_backward(GpuStream, const AttentionBackward&, float scale, const Size&);
int64_t attention_backward_scratch(const Size&);

}  // namespace kata::cuda::sm90
