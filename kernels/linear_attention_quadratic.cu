// Linear attention in tiles of scores, without a state: the chunked form with the whole sequence as its
// chunk.
//
// Floor: T (d + dv) operations a token and head forward, T (3 d + 2 dv) backward, in fp32 on the CUDA cores
// for both element types.
#include "ops/linear_attention.h"

namespace kata::cuda {

namespace {

LinearAttention one_chunk(const LinearAttention& settings, const AttentionSize& size) {
  LinearAttention whole = settings;
  whole.form = Form::chunked;
  whole.chunk = std::max<int64_t>(size.tokens, 1);
  return whole;
}

}  // namespace

int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention& settings,
                                           const AttentionSize& size) {
  return linear_attention_chunked_scratch(backward, one_chunk(settings, size), size);
}

template <class T>
void linear_attention_quadratic_forward(GpuStream stream, const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  linear_attention_chunked_forward<T>(stream, call, one_chunk(settings, size), size);
}

template <class T>
void linear_attention_quadratic_backward(GpuStream stream, const LinearAttentionBackward<T>& call,
                                         const LinearAttention& settings, const AttentionSize& size) {
  linear_attention_chunked_backward<T>(stream, call, one_chunk(settings, size), size);
}

#define KATA_INSTANTIATE(T)                                                                          \
  template void linear_attention_quadratic_forward<T>(GpuStream, const LinearAttentionForward<T>&,   \
                                                      const LinearAttention&, const AttentionSize&); \
  template void linear_attention_quadratic_backward<T>(GpuStream, const LinearAttentionBackward<T>&, \
                                                       const LinearAttention&, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
