// Linear attention as tiles of the causal triangle.
//
// Floor: each pair of a query and a visible key takes 2 (d + dv) operations forward and 2 (3 d + 2 dv)
// backward (psd_sum: M d in place of d), at the rate of the matrix product.
#include "ops/cpu/score.h"

namespace kata::cpu {

namespace {

template <class T>
struct ForwardScratch {
  ForwardScratch(T* base, const LinearAttention& settings, const AttentionSize& size)
      : slices(base),
        tile(slices, settings.map, size.value_width, size.tokens),
        mass(slices.take(query_tile)) {}
  Slices<T> slices;
  ScoreTile<T> tile;
  T* mass;
};

template <class T>
struct BackwardScratch {
  BackwardScratch(T* base, const LinearAttention& settings, const AttentionSize& size)
      : slices(base),
        tile(slices, settings.map, size.value_width, size.tokens),
        g(slices.take(query_tile * (size.value_width + 1))),
        row(slices.take(size.width)) {}
  Slices<T> slices;
  ScoreTile<T> tile;
  T *g, *row;
};

template <class T>
void backward_tile(const LinearAttentionBackward<T>& call, const LinearAttention& settings,
                   const AttentionSize& size, const BackwardScratch<T>& scratch, int64_t b, int64_t h,
                   int64_t begin, int64_t end, const Rows<T>& dk, const Rows<T>& dv) {
  const bool normalised = settings.read == Read::normalised;
  const int64_t kv = h / size.group(), columns = state_columns(settings.read, size.value_width);
  for (int64_t t = begin; t < end; ++t)
    read_gradient_row(scratch.g + (t - begin) * columns, call.d_o.at(b, t, h), call.o.at(b, t, h),
                      normalised ? call.mass + (b * size.tokens + t) * size.heads + h : nullptr,
                      size.value_width);
  const Rows<T> dq = head_rows(call.dq, b, h);
  const Rows<const T> q = head_rows(call.q, b, h);
  const HeadDecay<T> decay(call.decay, b, kv);
  zero_rows(dq, begin, end, size.width);
  scratch.tile.backward(dq, dk, dv, q, head_rows(call.k, b, kv), head_rows(call.v, b, kv),
                        {scratch.g, columns}, normalised, {begin, end, decay.first_seen(begin)}, decay);
  query_rows_backward(dq, q, begin, end, decay_gradients(call, size, b, h), settings.map, scratch.row);
}

}  // namespace

int64_t linear_attention_quadratic_scratch(bool backward, const LinearAttention& settings,
                                           const AttentionSize& size) {
  if (!backward) return thread_count() * ForwardScratch<float>(nullptr, settings, size).slices.used();
  return backward_partials(size) +
         thread_count() * BackwardScratch<float>(nullptr, settings, size).slices.used();
}

template <class T>
void linear_attention_quadratic_forward(const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  const int64_t tiles = ceil_div(size.tokens, query_tile);
  const int64_t stride = ForwardScratch<T>(nullptr, settings, size).slices.used();
  const bool normalised = settings.read == Read::normalised;
  parallel_for(size.batch * size.heads * tiles, [&](int64_t unit) {
    const ForwardScratch<T> scratch(call.scratch + thread_index() * stride, settings, size);
    const int64_t b = unit / tiles / size.heads, h = unit / tiles % size.heads;
    const int64_t begin = (tiles - 1 - unit % tiles) * query_tile;  // the longest first
    const int64_t end = std::min(begin + query_tile, size.tokens), kv = h / size.group();
    const Rows<T> o = head_rows(call.o, b, h);
    const HeadDecay<T> decay(call.decay, b, kv);
    zero_rows(o, begin, end, size.value_width);
    std::fill_n(scratch.mass, query_tile, T(0));
    scratch.tile.forward(o, normalised ? scratch.mass : nullptr, head_rows(call.q, b, h),
                         head_rows(call.k, b, kv), head_rows(call.v, b, kv),
                         {begin, end, decay.first_seen(begin)}, decay);
    if (!normalised) return;
    for (int64_t t = begin; t < end; ++t) {
      call.mass[(b * size.tokens + t) * size.heads + h] = scratch.mass[t - begin];
      normalise_row(o.at(t), scratch.mass[t - begin], size.value_width);
    }
  });
}

template <class T>
void linear_attention_quadratic_backward(const LinearAttentionBackward<T>& call,
                                         const LinearAttention& settings, const AttentionSize& size) {
  const int64_t stride = BackwardScratch<T>(nullptr, settings, size).slices.used();
  T* thread_scratch = call.scratch + backward_partials(size);
  backward_over_tiles(
      call.dk, call.dv, call.scratch, size,
      [&](int64_t b, int64_t h, int64_t begin, int64_t end, const Rows<T>& dk, const Rows<T>& dv) {
        const BackwardScratch<T> scratch(thread_scratch + thread_index() * stride, settings, size);
        backward_tile(call, settings, size, scratch, b, h, begin, end, dk, dv);
      },
      [&](int64_t b, int64_t kv, int64_t begin, int64_t end) {
        const BackwardScratch<T> scratch(thread_scratch + thread_index() * stride, settings, size);
        key_rows_backward(head_rows(call.dk, b, kv), head_rows(call.k, b, kv), begin, end,
                          decay_gradients(call, size, b, kv * size.group()), settings.map, scratch.row);
      });
  finish_decay_gradients(call, size);
}

#define KATA_INSTANTIATE(T)                                                                          \
  template void linear_attention_quadratic_forward<T>(const LinearAttentionForward<T>&,              \
                                                      const LinearAttention&, const AttentionSize&); \
  template void linear_attention_quadratic_backward<T>(const LinearAttentionBackward<T>&,            \
                                                       const LinearAttention&, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
