// Linear attention in tiles of scores, without a state: the chunked form with the whole sequence as its
// chunk; on Hopper, in bf16, the psd maps at width 64 without decay and documents have kernels of their own.
//
// Floor: T (d + dv) operations a token and head forward, T (3 d + 2 dv) backward, in fp32 on the CUDA cores
// for both element types, on Hopper on the tensor cores.
#include <optional>

#include "kernels/sm90/attention.h"
#include "ops/linear_attention.h"

namespace kata::cuda {

namespace {

LinearAttention one_chunk(const LinearAttention& settings, const AttentionSize& size) {
  LinearAttention whole = settings;
  whole.chunk = std::max<int64_t>(size.tokens, 1);
  return whole;
}

sm90::Size hopper_size(const AttentionSize& size) {
  return {size.batch, size.tokens, size.heads, size.kv_heads, size.width, size.value_width};
}
template <class T>
sm90::View<T> hopper_view(const TokenHeads<T>& x) {
  return {x.data, x.batch, x.token, x.head};
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

bool on_hopper(const LinearAttentionForward<bf16>& call, const LinearAttention& settings,
               const AttentionSize& size) {
  return hopper_score(settings, size) && !call.decay.any() && sm90::supports(hopper_view(call.q)) &&
         sm90::supports(hopper_view(call.k)) && sm90::supports(hopper_view(call.v)) &&
         sm90::supports(hopper_view(call.o)) && sm90::available();
}
bool on_hopper(const LinearAttentionBackward<bf16>& call, const LinearAttention& settings,
               const AttentionSize& size) {
  return hopper_score(settings, size) && !call.decay.any() && sm90::supports(hopper_view(call.q)) &&
         sm90::supports(hopper_view(call.k)) && sm90::supports(hopper_view(call.v)) &&
         sm90::supports(hopper_view(call.o)) && sm90::supports(hopper_view(call.d_o)) &&
         sm90::supports(hopper_view(call.dq)) && sm90::supports(hopper_view(call.dk)) &&
         sm90::supports(hopper_view(call.dv)) && sm90::available();
}

}  // namespace

int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention& settings,
                                           const AttentionSize& size) {
  const int64_t portable = linear_attention_chunked_scratch(backward, one_chunk(settings, size), size);
  if (!backward || !hopper_score(settings, size)) return portable;
  return std::max(portable, sm90::attention_backward_scratch(hopper_size(size)) / int64_t{sizeof(float)} + 1);
}

template <class T>
void linear_attention_quadratic_forward(GpuStream stream, const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  if constexpr (std::is_same_v<T, bf16>)
    if (on_hopper(call, settings, size))
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
    if (on_hopper(call, settings, size))
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
