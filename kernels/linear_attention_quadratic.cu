// Linear attention in tiles of scores, without a state: the chunked form with the whole sequence as its
// chunk; on Hopper, in bf16, the psd maps at width 64 without decay and documents have kernels of their own.
//
// Floor: T (d + dv) operations a token and head forward, T (3 d + 2 dv) backward, in fp32 on the CUDA cores
// for both element types, on Hopper on the tensor cores.
#include <optional>

#include "kernels/common/hopper.h"
#include "ops/linear_attention.h"

namespace kata::cuda {

namespace {

LinearAttention one_chunk(const LinearAttention& settings, const AttentionSize& size) {
  LinearAttention whole = settings;
  whole.chunk = std::max<int64_t>(size.tokens, 1);
  return whole;
}

// The score that Hopper's kernels know it by.
std::optional<sm90::Score> hopper_score(const LinearAttention& settings, const AttentionSize& size) {
  if (settings.map.kind != MapKind::psd || settings.read != Read::normalised) return {};
  if (!sm90::supports(hopper_size(size))) return {};
  switch (settings.map.groups) {
    case 1:
      return sm90::Score::psd1;
    case 2:
      return sm90::Score::psd2;
    case 4:
      return sm90::Score::psd4;
  }
  return {};
}

// f.template operator()<score>()
template <class F>
void with_score(sm90::Score score, F&& f) {
  switch (score) {
    case sm90::Score::psd1:
      return f.template operator()<sm90::Score::psd1>();
    case sm90::Score::psd2:
      return f.template operator()<sm90::Score::psd2>();
    default:
      return f.template operator()<sm90::Score::psd4>();
  }
}

}  // namespace

int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention& settings,
                                           const AttentionSize& size) {
  const int64_t portable = linear_attention_chunked_scratch(backward, one_chunk(settings, size), size);
  return backward && hopper_score(settings, size) ? backward_scratch(portable, size) : portable;
}

template <class T>
void linear_attention_quadratic_forward(GpuStream stream, const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  if constexpr (std::is_same_v<T, bf16>)
    if (hopper_score(settings, size) && !call.decay.any() && on_hopper(size, call.q, call.k, call.v, call.o))
      return with_score(*hopper_score(settings, size), [&]<sm90::Score score>() {
        sm90::attention_forward<score>(
            stream,
            {hopper_view(call.o), call.mass, hopper_view(call.q), hopper_view(call.k), hopper_view(call.v)},
            static_cast<float>(settings.map.sigma()), hopper_size(size));
      });
  linear_attention_chunked_forward<T>(stream, call, one_chunk(settings, size), size);
}

template <class T>
void linear_attention_quadratic_backward(GpuStream stream, const LinearAttentionBackward<T>& call,
                                         const LinearAttention& settings, const AttentionSize& size) {
  if constexpr (std::is_same_v<T, bf16>)
    if (hopper_score(settings, size) && !call.decay.any() &&
        on_hopper(size, call.q, call.k, call.v, call.o, call.d_o, call.dq, call.dk, call.dv))
      return with_score(*hopper_score(settings, size), [&]<sm90::Score score>() {
        sm90::attention_backward<score>(stream,
                                        {hopper_view(call.dq), hopper_view(call.dk), hopper_view(call.dv),
                                         hopper_view(call.d_o), hopper_view(call.q), hopper_view(call.k),
                                         hopper_view(call.v), hopper_view(call.o), call.mass, call.scratch},
                                        static_cast<float>(settings.map.sigma()), hopper_size(size));
      });
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
