#include "ops/short_conv.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;     // rows of [batch * time] per unit
constexpr int64_t tile_channels = 256;  // channels worked on at a time: a tile of every tap stays in the L1

// filter: [taps, channels], so that channels are contiguous in every tap.
template <class T>
void transpose_weight(T* filter, const T* weight, const ShortConvSize& s) {
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t j = 0; j < s.taps; ++j) filter[j * s.channels + c] = weight[c * s.taps + j];
}

// How many inputs before time t of sequence b count: those of its document, at most taps - 1, that are at
// hand.
template <class T>
int64_t reach_of(const ShortConvInput<T>& in, int64_t b, int64_t t, const ShortConvSize& s) {
  const int64_t past = s.taps - 1;
  if (in.window == nullptr) return std::min(past, std::min(t, t - in.starts.at(b, t)));
  return in.starts.given() ? std::min(past, t - in.starts.at(b, t)) : past;
}

// One time of one sequence, at the channels of one tile.
template <class T>
struct Token {
  const T* x;                  // of time t; that of time t - 1 lies s.channels before it
  const T *filter, *bias;      // of tap 0; null without a bias
  const T* window;             // null without one
  int64_t t, reach, channels;  // channels: those of the tile
};

// The input `back` tokens before, back <= reach.
template <class T>
const T* input_before(const Token<T>& token, int64_t back, const ShortConvSize& s) {
  if (back <= token.t) return token.x - back * s.channels;
  return token.window + (s.taps - 1 + token.t - back) * s.channels;
}

// z [channels of the tile] = the convolution.
template <class T>
void convolve(T* z, const Token<T>& token, const ShortConvSize& s) {
  const int64_t n = token.channels;
  const T *filter = token.filter, *x = token.x;
  if (s.taps == 4 && token.reach == 3 && token.t >= 3) {  // the usual width, in one pass
    const T *w0 = filter, *w1 = w0 + s.channels, *w2 = w1 + s.channels, *w3 = w2 + s.channels;
    const T *x0 = x - 3 * s.channels, *x1 = x0 + s.channels, *x2 = x1 + s.channels;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) z[c] = w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x[c];
  } else {
    for (int64_t c = 0; c < n; ++c) z[c] = 0;
    for (int64_t back = token.reach; back >= 0; --back) {
      const T *w = filter + (s.taps - 1 - back) * s.channels, *past = input_before(token, back, s);
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) z[c] += w[c] * past[c];
    }
  }
  if (token.bias == nullptr) return;
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) z[c] += token.bias[c];
}

// z [n] += w x for one tap; weights of neighbouring channels lie `stride` apart.
template <class T>
void add_tap(T* z, const T* w, const T* x, int64_t n, int64_t stride) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) z[c] += w[c * stride] * x[c];
}

// One sequence at the channels of one tile; pointers are at its time 0.
template <class T>
struct BackwardTile {
  T *dx, *sum;  // sum: [taps, channels] of dweight, then, with a bias, [channels] of dbias
  const T *dy, *x, *filter, *bias;
  int64_t b, channels;  // the sequence; the channels of the tile
};

// dx_t = sum_j w_j dz[t + (taps - 1) - j] over the later times of the document; ring: dz of time t' at
// [t' % taps], of all that lie inside the sequence.
template <class T>
void correlate(const BackwardTile<T>& tile, const T (*ring)[tile_channels], int64_t t, const Starts& starts,
               const ShortConvSize& s) {
  const int64_t n = tile.channels;
  T* dx = tile.dx + t * s.channels;
  for (int64_t c = 0; c < n; ++c) dx[c] = 0;
  for (int64_t j = s.taps - 1; j >= 0; --j) {
    const int64_t later = t + (s.taps - 1) - j;
    if (later >= s.time || starts.at(tile.b, later) > t) break;
    const T *w = tile.filter + j * s.channels, *dz = ring[later % s.taps];
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) dx[c] += w[c] * dz[c];
  }
}

// sum += dz_t x[t - (taps - 1) + j], and dz_t itself for the bias.
template <class T>
void add_weight_gradient(T* sum, const T* dz, const Token<T>& token, const ShortConvSize& s) {
  const int64_t n = token.channels;
  for (int64_t back = token.reach; back >= 0; --back) {
    const T* past = token.x - back * s.channels;
    T* to = sum + (s.taps - 1 - back) * s.channels;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) to[c] += dz[c] * past[c];
  }
  if (token.bias == nullptr) return;
  T* to = sum + s.taps * s.channels;
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) to[c] += dz[c];
}

// convolve, correlate and add_weight_gradient in one pass for the usual width, where times t - 3 to t are of
// one document: writes dx of t - 3; dz of t - 3, t - 2 and t - 1 is in the ring.
template <class T, bool biased>
void backward_four_taps(const BackwardTile<T>& tile, T (*ring)[tile_channels], int64_t t,
                        const ShortConvSize& s) {
  const T *w0 = tile.filter, *w1 = w0 + s.channels, *w2 = w1 + s.channels, *w3 = w2 + s.channels;
  const T *x0 = tile.x + (t - 3) * s.channels, *x1 = x0 + s.channels, *x2 = x1 + s.channels,
          *x3 = x2 + s.channels;
  T *s0 = tile.sum, *s1 = s0 + s.channels, *s2 = s1 + s.channels, *s3 = s2 + s.channels,
    *s4 = s3 + s.channels;
  const T *dz0 = ring[(t - 3) % 4], *dz1 = ring[(t - 2) % 4], *dz2 = ring[(t - 1) % 4];
  const T *dy = tile.dy + t * s.channels, *bias = tile.bias;
  T *dz3 = ring[t % 4], *dx = tile.dx + (t - 3) * s.channels;
#pragma omp simd
  for (int64_t c = 0; c < tile.channels; ++c) {
    T z = w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x3[c];
    if constexpr (biased) z += bias[c];
    const T dz = dy[c] * silu_derivative(z);
    dz3[c] = dz;
    dx[c] = w3[c] * dz0[c] + w2[c] * dz1[c] + w1[c] * dz2[c] + w0[c] * dz;
    s0[c] += dz * x0[c];
    s1[c] += dz * x1[c];
    s2[c] += dz * x2[c];
    s3[c] += dz * x3[c];
    if constexpr (biased) s4[c] += dz;
  }
}

// Times [begin, end). dx of a time is written when dz of the last time that it reached is known; dz of the
// taps - 1 times behind the range is computed for that alone.
template <class T>
void backward_tile(const BackwardTile<T>& tile, const ShortConvInput<T>& in, int64_t begin, int64_t end,
                   const ShortConvSize& s) {
  T ring[short_conv_max_taps][tile_channels];
  T z[tile_channels];
  const int64_t past = s.taps - 1, last = std::min(end + past, s.time);
  for (int64_t t = begin; t < last; ++t) {
    const int64_t at = t * s.channels, ready = t - past, reach = reach_of(in, tile.b, t, s);
    if (s.taps == 4 && reach == 3 && ready >= begin && t < end) {
      if (tile.bias == nullptr)
        backward_four_taps<T, false>(tile, ring, t, s);
      else
        backward_four_taps<T, true>(tile, ring, t, s);
      continue;
    }
    const Token<T> token{tile.x + at, tile.filter, tile.bias, nullptr, t, reach, tile.channels};
    T* dz = ring[t % s.taps];
    convolve(z, token, s);
#pragma omp simd
    for (int64_t c = 0; c < tile.channels; ++c) dz[c] = tile.dy[at + c] * silu_derivative(z[c]);
    if (t < end) add_weight_gradient(tile.sum, dz, token, s);
    if (ready >= begin) correlate(tile, ring, ready, in.starts, s);
  }
  for (int64_t t = std::max(begin, last - past); t < end; ++t)  // at the end of the sequence
    correlate(tile, ring, t, in.starts, s);
}

// body(sequence, first time, last time + 1) for the parts of sequences in rows [begin, end).
template <class Body>
void for_sequences(int64_t begin, int64_t end, int64_t time, Body&& body) {
  while (begin < end) {
    const int64_t b = begin / time, stop = std::min(end, (b + 1) * time);
    body(b, begin - b * time, stop - b * time);
    begin = stop;
  }
}

}  // namespace

template <class T>
void short_conv_forward(T* y, const ShortConvInput<T>& in, T* filter, const ShortConvSize& s) {
  transpose_weight(filter, in.weight, s);
  parallel_blocks(s.batch * s.time, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t b = r / s.time, t = r - b * s.time, reach = reach_of(in, b, t, s);
      for (int64_t c = 0; c < s.channels; c += tile_channels) {
        T z[tile_channels];
        const int64_t n = std::min(tile_channels, s.channels - c), at = r * s.channels + c;
        const T* window = in.window == nullptr ? nullptr : in.window + b * (s.taps - 1) * s.channels + c;
        convolve(z, {in.x + at, filter + c, in.bias == nullptr ? nullptr : in.bias + c, window, t, reach, n},
                 s);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[at + i] = silu(z[i]);
      }
    }
  });
}

int64_t short_conv_partials(const ShortConvSize& s) {
  return ceil_div(s.batch * s.time, block_rows);
}

template <class T>
void short_conv_backward(T* dx, T* dweight, T* dbias, const T* dy, const ShortConvInput<T>& in, T* filter,
                         T* partial, const ShortConvSize& s) {
  transpose_weight(filter, in.weight, s);
  const int64_t sums = s.taps + (dbias == nullptr ? 0 : 1);
  parallel_blocks(s.batch * s.time, block_rows, [&](int64_t begin, int64_t end) {
    T* sum = partial + begin / block_rows * sums * s.channels;
    std::fill_n(sum, sums * s.channels, T(0));
    for_sequences(begin, end, s.time, [&](int64_t b, int64_t from, int64_t to) {
      for (int64_t c = 0; c < s.channels; c += tile_channels) {
        const int64_t at = b * s.time * s.channels + c;
        backward_tile<T>(
            {dx + at, sum + c, dy + at, in.x + at, filter + c, in.bias == nullptr ? nullptr : in.bias + c, b,
             std::min(tile_channels, s.channels - c)},
            in, from, to, s);
      }
    });
  });
  const int64_t partials = short_conv_partials(s);
  parallel_blocks(s.channels, tile_channels, [&](int64_t begin, int64_t end) {
    for (int64_t p = 0; p < partials; ++p)
      for (int64_t j = 0; j < sums; ++j)
        for (int64_t c = begin; c < end; ++c)
          (j < s.taps ? dweight[c * s.taps + j] : dbias[c]) += partial[(p * sums + j) * s.channels + c];
  });
}

template <class T>
void short_conv_step(T* y, const T* x, T* window, const T* weight, const T* bias, const ShortConvSize& s) {
  const int64_t past = s.taps - 1;
  for (int64_t b = 0; b < s.batch; ++b) {
    const T* in = x + b * s.channels;
    T *seen = window + b * past * s.channels, *out = y + b * s.channels;
    for (int64_t c = 0; c < s.channels; c += tile_channels) {
      T z[tile_channels];
      const int64_t n = std::min(tile_channels, s.channels - c);
      for (int64_t i = 0; i < n; ++i) z[i] = bias == nullptr ? 0 : bias[c + i];
      for (int64_t j = 0; j < s.taps; ++j)
        add_tap(z, weight + c * s.taps + j, (j < past ? seen + j * s.channels : in) + c, n, s.taps);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[c + i] = silu(z[i]);
    }
    if (past == 0) continue;
    std::copy(seen + s.channels, seen + past * s.channels, seen);
    std::copy_n(in, s.channels, seen + (past - 1) * s.channels);
  }
}

// Entry j of the window is the input of time `time - past + j`. In place, an entry moves down, to where one
// has been that was moved already.
template <class T>
void short_conv_window(T* window, const T* x, const T* before, const Starts& starts, const ShortConvSize& s) {
  const int64_t past = s.taps - 1;
  for (int64_t b = 0; b < s.batch; ++b) {
    const bool known = starts.given() && s.time > 0;
    for (int64_t j = 0; j < past; ++j) {
      const int64_t t = s.time - past + j;
      T* to = window + (b * past + j) * s.channels;
      const T* from = t >= 0              ? x + (b * s.time + t) * s.channels
                      : before == nullptr ? nullptr
                                          : before + (b * past + past + t) * s.channels;
      if (from == nullptr || (known && t < starts.at(b, s.time - 1)))
        std::fill_n(to, s.channels, T(0));
      else if (from != to)
        std::copy_n(from, s.channels, to);
    }
  }
}

#define KATA_INSTANTIATE(T)                                                                     \
  template void short_conv_forward<T>(T*, const ShortConvInput<T>&, T*, const ShortConvSize&);  \
  template void short_conv_backward<T>(T*, T*, T*, const T*, const ShortConvInput<T>&, T*, T*,  \
                                       const ShortConvSize&);                                   \
  template void short_conv_step<T>(T*, const T*, T*, const T*, const T*, const ShortConvSize&); \
  template void short_conv_window<T>(T*, const T*, const T*, const Starts&, const ShortConvSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
