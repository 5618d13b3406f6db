#include "ops/short_conv.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/vector_math.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;  // rows of [batch * time] per unit
constexpr int64_t tile = 256;        // channels worked on at a time: a tile of every tap stays in the L1

// filter: [taps, channels], so that channels are contiguous in every tap.
template <class T>
void transpose_weight(T* filter, const T* weight, const ShortConvSize& s) {
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t j = 0; j < s.taps; ++j) filter[j * s.channels + c] = weight[c * s.taps + j];
}

// z [n] = the convolution at time t for channels of one tile; x points at those channels of time t, filter at
// those of tap 0.
template <class T>
void convolve(T* z, const T* x, const T* filter, int64_t t, int64_t n, const ShortConvSize& s) {
  if (s.taps == 4 && t >= 3) {  // the usual width, in one pass
    const T *w0 = filter, *w1 = w0 + s.channels, *w2 = w1 + s.channels, *w3 = w2 + s.channels;
    const T *x0 = x - 3 * s.channels, *x1 = x0 + s.channels, *x2 = x1 + s.channels;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) z[c] = w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x[c];
    return;
  }
  for (int64_t c = 0; c < n; ++c) z[c] = 0;
  for (int64_t j = std::max(s.taps - 1 - t, int64_t{0}); j < s.taps; ++j) {
    const T *w = filter + j * s.channels, *past = x - (s.taps - 1 - j) * s.channels;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) z[c] += w[c] * past[c];
  }
}

// z [n] += w x for one tap; weights of neighbouring channels lie `stride` apart.
template <class T>
void add_tap(T* z, const T* w, const T* x, int64_t n, int64_t stride) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) z[c] += w[c * stride] * x[c];
}

// dx_t [n] = sum_j w_j dz[t + (taps - 1) - j]; ring: dz of time t' at [t' % taps], of all that lie inside the
// sequence.
template <class T>
void correlate(T* dx, const T (*ring)[tile], const T* filter, int64_t t, int64_t n, const ShortConvSize& s) {
  for (int64_t c = 0; c < n; ++c) dx[c] = 0;
  for (int64_t j = s.taps - 1; j >= 0; --j) {
    const int64_t later = t + (s.taps - 1) - j;
    if (later >= s.time) break;
    const T *w = filter + j * s.channels, *dz = ring[later % s.taps];
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) dx[c] += w[c] * dz[c];
  }
}

// sum [taps, channels] += dz_t x[t - (taps - 1) + j], for the channels of one tile.
template <class T>
void add_weight_gradient(T* sum, const T* dz, const T* x, int64_t t, int64_t n, const ShortConvSize& s) {
  for (int64_t j = std::max(s.taps - 1 - t, int64_t{0}); j < s.taps; ++j) {
    const T* past = x - (s.taps - 1 - j) * s.channels;
    T* to = sum + j * s.channels;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) to[c] += dz[c] * past[c];
  }
}

// convolve, correlate and add_weight_gradient in one pass for the usual width: dy and x point at time t >= 3,
// dx at t - 3, and dz of t - 3, t - 2 and t - 1 is in the ring.
template <class T>
void backward_four_taps(T* dx, T (*ring)[tile], T* sum, const T* dy, const T* x, const T* filter, int64_t t,
                        int64_t n, const ShortConvSize& s) {
  const T *w0 = filter, *w1 = w0 + s.channels, *w2 = w1 + s.channels, *w3 = w2 + s.channels;
  const T *x0 = x - 3 * s.channels, *x1 = x0 + s.channels, *x2 = x1 + s.channels;
  T *s0 = sum, *s1 = s0 + s.channels, *s2 = s1 + s.channels, *s3 = s2 + s.channels;
  const T *dz0 = ring[(t - 3) % 4], *dz1 = ring[(t - 2) % 4], *dz2 = ring[(t - 1) % 4];
  T* dz3 = ring[t % 4];
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    const T z = w0[c] * x0[c] + w1[c] * x1[c] + w2[c] * x2[c] + w3[c] * x[c];
    const T dz = dy[c] * silu_derivative(z);
    dz3[c] = dz;
    dx[c] = w3[c] * dz0[c] + w2[c] * dz1[c] + w1[c] * dz2[c] + w0[c] * dz;
    s0[c] += dz * x0[c];
    s1[c] += dz * x1[c];
    s2[c] += dz * x2[c];
    s3[c] += dz * x[c];
  }
}

// Times [begin, end) of one sequence and n channels. dx of a time is written when dz of the last time that it
// reached is known; dz of the taps - 1 times behind the range is computed for that alone.
template <class T>
void backward_tile(T* dx, T* sum, const T* dy, const T* x, const T* filter, int64_t begin, int64_t end,
                   int64_t n, const ShortConvSize& s) {
  T ring[short_conv_max_taps][tile];
  T z[tile];
  const int64_t reach = s.taps - 1, last = std::min(end + reach, s.time);
  for (int64_t t = begin; t < last; ++t) {
    const int64_t at = t * s.channels, ready = t - reach;
    if (s.taps == 4 && ready >= begin && t < end) {
      backward_four_taps(dx + ready * s.channels, ring, sum, dy + at, x + at, filter, t, n, s);
      continue;
    }
    T* dz = ring[t % s.taps];
    convolve(z, x + at, filter, t, n, s);
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) dz[c] = dy[at + c] * silu_derivative(z[c]);
    if (t < end) add_weight_gradient(sum, dz, x + at, t, n, s);
    if (ready >= begin) correlate(dx + ready * s.channels, ring, filter, ready, n, s);
  }
  for (int64_t t = std::max(begin, last - reach); t < end; ++t)  // at the end of the sequence
    correlate(dx + t * s.channels, ring, filter, t, n, s);
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
void short_conv_forward(T* y, const T* x, const T* weight, T* filter, const ShortConvSize& s) {
  transpose_weight(filter, weight, s);
  parallel_blocks(s.batch * s.time, block_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < s.channels; c += tile) {
        T z[tile];
        const int64_t n = std::min(tile, s.channels - c), at = r * s.channels + c;
        convolve(z, x + at, filter + c, r % s.time, n, s);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[at + i] = silu(z[i]);
      }
  });
}

int64_t short_conv_partials(const ShortConvSize& s) {
  return ceil_div(s.batch * s.time, block_rows);
}

template <class T>
void short_conv_backward(T* dx, T* dweight, const T* dy, const T* x, const T* weight, T* filter, T* partial,
                         const ShortConvSize& s) {
  transpose_weight(filter, weight, s);
  parallel_blocks(s.batch * s.time, block_rows, [&](int64_t begin, int64_t end) {
    T* sum = partial + begin / block_rows * s.taps * s.channels;
    std::fill_n(sum, s.taps * s.channels, T(0));
    for_sequences(begin, end, s.time, [&](int64_t b, int64_t from, int64_t to) {
      for (int64_t c = 0; c < s.channels; c += tile) {
        const int64_t at = b * s.time * s.channels + c;
        backward_tile(dx + at, sum + c, dy + at, x + at, filter + c, from, to, std::min(tile, s.channels - c),
                      s);
      }
    });
  });
  const int64_t partials = short_conv_partials(s);
  parallel_blocks(s.channels, tile, [&](int64_t begin, int64_t end) {
    for (int64_t p = 0; p < partials; ++p)
      for (int64_t j = 0; j < s.taps; ++j)
        for (int64_t c = begin; c < end; ++c)
          dweight[c * s.taps + j] += partial[(p * s.taps + j) * s.channels + c];
  });
}

template <class T>
void short_conv_step(T* y, const T* x, T* window, const T* weight, const ShortConvSize& s) {
  const int64_t past = s.taps - 1;
  for (int64_t b = 0; b < s.batch; ++b) {
    const T* in = x + b * s.channels;
    T *seen = window + b * past * s.channels, *out = y + b * s.channels;
    for (int64_t c = 0; c < s.channels; c += tile) {
      T z[tile];
      const int64_t n = std::min(tile, s.channels - c);
      for (int64_t i = 0; i < n; ++i) z[i] = 0;
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

template <class T>
void short_conv_window(T* window, const T* x, const ShortConvSize& s) {
  const int64_t past = s.taps - 1;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t j = 0; j < past; ++j) {
      const int64_t t = s.time - past + j;
      T* to = window + (b * past + j) * s.channels;
      if (t >= 0)
        std::copy_n(x + (b * s.time + t) * s.channels, s.channels, to);
      else
        std::fill_n(to, s.channels, T(0));
    }
}

#define KATA_INSTANTIATE(T)                                                                                 \
  template void short_conv_forward<T>(T*, const T*, const T*, T*, const ShortConvSize&);                    \
  template void short_conv_backward<T>(T*, T*, const T*, const T*, const T*, T*, T*, const ShortConvSize&); \
  template void short_conv_step<T>(T*, const T*, T*, const T*, const ShortConvSize&);                       \
  template void short_conv_window<T>(T*, const T*, const ShortConvSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
