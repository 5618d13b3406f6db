// Linear attention in tiles of scores, without a state: the chunked form with the whole sequence as its
// chunk. In bf16 the tensor cores do it for the psd maps with 1, 2 and 4 groups at widths of 32, 64 and 128
// (kernels/common/mma_attention.h), on Hopper at width 64 without decay and documents kernels of their own.
//
// Floor: T (d + dv) operations a token and head forward, T (3 d + 2 dv) backward, on the tensor cores for
// those and in fp32 on the CUDA cores for the others.
#include <optional>

#include "kernels/common/hopper.h"
#include "kernels/common/mma_attention.h"
#include "ops/linear_attention.h"

namespace kata::cuda {

namespace {

LinearAttention one_chunk(const LinearAttention& settings, const AttentionSize& size) {
  LinearAttention whole = settings;
  whole.chunk = std::max<int64_t>(size.tokens, 1);
  return whole;
}

// The score that kernels of the tensor cores know it by.
std::optional<TileScore> tile_score(const LinearAttention& settings) {
  if (settings.map.kind != MapKind::psd) return {};
  switch (settings.map.groups) {
    case 1:
      return TileScore::psd1;
    case 2:
      return TileScore::psd2;
    case 4:
      return TileScore::psd4;
  }
  return {};
}
bool hopper_has(const LinearAttention& settings, const AttentionSize& size) {
  return tile_score(settings) && settings.read == Read::normalised && sm90::supports(hopper_size(size));
}

// f.template operator()<score here, score there>()
template <class F>
void with_score(TileScore score, F&& f) {
  switch (score) {
    case TileScore::psd1:
      return f.template operator()<TileScore::psd1, sm90::Score::psd1>();
    case TileScore::psd2:
      return f.template operator()<TileScore::psd2, sm90::Score::psd2>();
    default:
      return f.template operator()<TileScore::psd4, sm90::Score::psd4>();
  }
}

}  // namespace

int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention& settings,
                                           const AttentionSize& size) {
  const int64_t chunked = linear_attention_chunked_scratch(backward, one_chunk(settings, size), size);
  const int64_t portable =
      tile_score(settings) ? std::max(chunked, mma_attention_scratch(backward, size)) : chunked;
  return backward && hopper_has(settings, size) ? backward_scratch(portable, size) : portable;
}

template <class T>
void linear_attention_quadratic_forward(GpuStream stream, const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  if constexpr (std::is_same_v<T, bf16>) {
    const float scale = static_cast<float>(settings.map.sigma());
    if (hopper_has(settings, size) && !call.decay.any() && on_hopper(size, call.q, call.k, call.v, call.o))
      return with_score(*tile_score(settings), [&]<TileScore, sm90::Score score>() {
        sm90::attention_forward<score>(
            stream,
            {hopper_view(call.o), call.mass, hopper_view(call.q), hopper_view(call.k), hopper_view(call.v)},
            scale, hopper_size(size));
      });
    if (tile_score(settings) && mma_takes(size, scale, call.o, call.q, call.k, call.v))
      return with_score(*tile_score(settings), [&]<TileScore score, sm90::Score>() {
        mma_attention_forward<score>(
            stream, {call.o, call.mass, call.q, call.k, call.v, call.decay, 0, call.scratch}, scale, size);
      });
  }
  linear_attention_chunked_forward<T>(stream, call, one_chunk(settings, size), size);
}

template <class T>
void linear_attention_quadratic_backward(GpuStream stream, const LinearAttentionBackward<T>& call,
                                         const LinearAttention& settings, const AttentionSize& size) {
  if constexpr (std::is_same_v<T, bf16>) {
    const float scale = static_cast<float>(settings.map.sigma());
    if (hopper_has(settings, size) && !call.decay.any() &&
        on_hopper(size, call.q, call.k, call.v, call.o, call.d_o, call.dq, call.dk, call.dv))
      return with_score(*tile_score(settings), [&]<TileScore, sm90::Score score>() {
        sm90::attention_backward<score>(stream,
                                        {hopper_view(call.dq), hopper_view(call.dk), hopper_view(call.dv),
                                         hopper_view(call.d_o), hopper_view(call.q), hopper_view(call.k),
                                         hopper_view(call.v), hopper_view(call.o), call.mass, call.scratch},
                                        scale, hopper_size(size));
      });
    if (tile_score(settings) &&
        mma_takes(size, scale, call.q, call.k, call.v, call.o, call.d_o, call.dq, call.dk, call.dv))
      return with_score(*tile_score(settings), [&]<TileScore score, sm90::Score>() {
        mma_attention_backward<score>(stream,
                                      {call.dq, call.dk, call.dv, call.d_o, call.q, call.k, call.v, call.o,
                                       call.mass, call.decay, call.dlog_decay, call.scratch},
                                      scale, size);
      });
  }
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
