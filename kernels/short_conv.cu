// Causal convolution along time and SiLU: a thread has a pack of channels and a run of tokens, whose last
// inputs stay in registers. It loads several tokens at once, so that enough bytes are under way.
//
// Floor: memory. Forward reads x and writes y; backward reads dy and x and writes dx.
#include "kernels/common/reduce.cuh"
#include "kernels/common/rows.cuh"
#include "ops/short_conv.h"

namespace kata::cuda {

namespace {

constexpr int threads = 128;
constexpr int64_t forward_run = 32, backward_run = 64;  // tokens of a thread

struct Run {
  int64_t b, c, begin, end;  // batch row, first channel, tokens
  bool any;
};
// Threads count channel packs, then runs, then batch rows.
template <int N>
__device__ __forceinline__ Run run_of(int64_t length, const ShortConvSize& size) {
  const int64_t packs = size.channels / N, runs = (size.time + length - 1) / length;
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  const int64_t begin = i / packs % runs * length;
  const int64_t end = begin + length < size.time ? begin + length : size.time;
  return {i / packs / runs, i % packs * N, begin, end, i < packs * runs * size.batch};
}

// Tokens that a thread loads at once.
template <int N>
inline constexpr int ahead = N > 1 ? 4 : 1;

// A pack of every of the tokens from t on; zeros from `end` on.
template <class T, int N>
struct Tokens {
  Pack<T, N> at[ahead<N>];

  __device__ Tokens(const T* x, const Run& run, int64_t t, int64_t end, const ShortConvSize& size) {
    const T* p = x + (run.b * size.time + t) * size.channels + run.c;
#pragma unroll
    for (int u = 0; u < ahead<N>; ++u)
      at[u] = t + u < end ? *reinterpret_cast<const Pack<T, N>*>(p + u * size.channels) : Pack<T, N>{};
  }
};

__device__ __forceinline__ float fast_sigmoid(float z) {
  return __fdividef(1, 1 + __expf(-z));
}

// x at token t of row b, which may lie in the window; zero before it.
template <class T, int N>
__device__ __forceinline__ void input_at(float (&x)[N], const ShortConvInput<T, Wide<T>>& in, int64_t b,
                                         int64_t t, int64_t c, const ShortConvSize& size) {
  const int64_t past = size.taps - 1;
  if (t >= 0) {
    load<N>(x, in.x + (b * size.time + t) * size.channels + c);
  } else if (in.window != nullptr && t >= -past) {
    load<N>(x, in.window + (b * past + past + t) * size.channels + c);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = 0;
  }
}

// The filter of a pack of channels, and its inputs at the last tokens.
template <class T, int N, int taps>
struct Window {
  float w[taps][N], bias[N];
  float x[taps][N];  // x[taps - 1]: the token's own

  __device__ Window(const ShortConvInput<T, Wide<T>>& in, int64_t c) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      bias[i] = in.bias == nullptr ? 0 : in.bias[c + i];
#pragma unroll
      for (int j = 0; j < taps; ++j) w[j][i] = in.weight[(c + i) * taps + j];
    }
  }
  // The inputs before token t.
  __device__ void begin(const ShortConvInput<T, Wide<T>>& in, const Run& run, int64_t t,
                        const ShortConvSize& size) {
#pragma unroll
    for (int j = 1; j < taps; ++j) input_at<T, N>(x[j], in, run.b, t - taps + j, run.c, size);
  }
  __device__ void advance(const Pack<T, N>& next) {
#pragma unroll
    for (int j = 0; j + 1 < taps; ++j)
#pragma unroll
      for (int i = 0; i < N; ++i) x[j][i] = x[j + 1][i];
#pragma unroll
    for (int i = 0; i < N; ++i) x[taps - 1][i] = to_float(next.at[i]);
  }
  // Tap j of token t sees its input: it is not before the document.
  __device__ static bool sees(int j, int64_t t, int64_t start, bool documents) {
    return !documents || t - (taps - 1) + j >= start;
  }
  __device__ void convolve(float (&z)[N], int64_t t, int64_t start, bool documents) const {
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = bias[i];
#pragma unroll
    for (int j = 0; j < taps; ++j)
      if (sees(j, t, start, documents))
#pragma unroll
        for (int i = 0; i < N; ++i) z[i] += w[j][i] * x[j][i];
  }
};

template <class T, int N, int taps>
__global__ void __launch_bounds__(threads, N > 1 ? 3 : 1)
    forward_kernel(T* y, ShortConvInput<T, Wide<T>> in, ShortConvSize size) {
  const Run run = run_of<N>(forward_run, size);
  if (!run.any) return;
  Window<T, N, taps> window(in, run.c);
  window.begin(in, run, run.begin, size);
  for (int64_t first = run.begin; first < run.end; first += ahead<N>) {
    const Tokens<T, N> tokens(in.x, run, first, run.end, size);
#pragma unroll
    for (int u = 0; u < ahead<N>; ++u) {
      const int64_t t = first + u;
      if (t >= run.end) break;
      window.advance(tokens.at[u]);
      float z[N];
      window.convolve(z, t, in.starts.at(run.b, t), in.starts.given());
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] *= fast_sigmoid(z[i]);
      store<N>(y + (run.b * size.time + t) * size.channels + run.c, z);
    }
  }
}

// dx of token s needs dz of the taps - 1 tokens after it: the run is walked that much further, and dz
// recomputed there. partial: [runs of the batch][taps (+ 1)][channels].
template <class T, int N, int taps>
__global__ void __launch_bounds__(threads, N > 1 ? 3 : 1)
    backward_kernel(T* dx, float* partial, const T* dy, ShortConvInput<T, Wide<T>> in, ShortConvSize size) {
  const Run run = run_of<N>(backward_run, size);
  if (!run.any) return;
  const bool documents = in.starts.given();
  Window<T, N, taps> window(in, run.c);
  window.begin(in, run, run.begin, size);
  float dw[taps][N] = {}, dbias[N] = {}, dz[taps][N] = {};  // dz[taps - 1]: of the token itself
  int64_t starts[taps] = {};
  const int64_t stop = run.end + taps - 1;
  for (int64_t first = run.begin; first < stop; first += ahead<N>) {
    const int64_t end = stop < size.time ? stop : size.time;
    const Tokens<T, N> tokens(in.x, run, first, end, size), gradients(dy, run, first, end, size);
#pragma unroll
    for (int u = 0; u < ahead<N>; ++u) {
      const int64_t t = first + u;
      if (t >= stop) break;
#pragma unroll
      for (int j = 0; j + 1 < taps; ++j) {
        starts[j] = starts[j + 1];
#pragma unroll
        for (int i = 0; i < N; ++i) dz[j][i] = dz[j + 1][i];
      }
#pragma unroll
      for (int i = 0; i < N; ++i) dz[taps - 1][i] = 0;
      if (t < size.time) {
        window.advance(tokens.at[u]);
        starts[taps - 1] = in.starts.at(run.b, t);
        float z[N];
        window.convolve(z, t, starts[taps - 1], documents);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float s = fast_sigmoid(z[i]);
          dz[taps - 1][i] = to_float(gradients.at[u].at[i]) * s * (1 + z[i] * (1 - s));
        }
        if (t < run.end) {
#pragma unroll
          for (int i = 0; i < N; ++i) dbias[i] += dz[taps - 1][i];
#pragma unroll
          for (int j = 0; j < taps; ++j)
            if (window.sees(j, t, starts[taps - 1], documents))
#pragma unroll
              for (int i = 0; i < N; ++i) dw[j][i] += dz[taps - 1][i] * window.x[j][i];
        }
      }
      const int64_t s = t - (taps - 1);  // its dz and those after it are all there
      if (s < run.begin) continue;
      float sum[N] = {};
#pragma unroll
      for (int j = 0; j < taps; ++j)  // token s + j meets x_s with tap taps - 1 - j
        if (s + j < size.time && (!documents || starts[j] <= s))
#pragma unroll
          for (int i = 0; i < N; ++i) sum[i] += window.w[taps - 1 - j][i] * dz[j][i];
      store<N>(dx + (run.b * size.time + s) * size.channels + run.c, sum);
    }
  }
  const int64_t rows = taps + (in.bias != nullptr), runs = (size.time + backward_run - 1) / backward_run;
  float* own = partial + (run.b * runs + run.begin / backward_run) * rows * size.channels + run.c;
#pragma unroll
  for (int j = 0; j < taps; ++j)
#pragma unroll
    for (int i = 0; i < N; ++i) own[j * size.channels + i] = dw[j][i];
  if (in.bias != nullptr)
#pragma unroll
    for (int i = 0; i < N; ++i) own[taps * size.channels + i] = dbias[i];
}

// Where column c of [taps][channels] lies in dweight [channels][taps].
struct Transposed {
  int64_t taps, channels;
  __device__ int64_t operator()(int64_t c) const { return c % channels * taps + c / channels; }
};

// Likewise with the bias behind the taps: an offset from dweight, wherever dbias lies.
struct TransposedAndBias {
  float *dweight, *dbias;
  Transposed transposed;
  __device__ int64_t operator()(int64_t c) const {
    const int64_t weights = transposed.taps * transposed.channels;
    return c < weights ? transposed(c) : dbias - dweight + c - weights;
  }
};

template <class T>
__global__ void step_kernel(T* y, const T* x, T* window, const Wide<T>* weight, const Wide<T>* bias,
                            ShortConvSize size) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  if (i >= size.batch * size.channels) return;
  const int64_t b = i / size.channels, c = i % size.channels, past = size.taps - 1;
  T* own = window + b * past * size.channels + c;
  float z = bias == nullptr ? 0 : bias[c];
  for (int64_t j = 0; j < past; ++j) {
    z += weight[c * size.taps + j] * to_float(own[j * size.channels]);
    own[j * size.channels] = j + 1 < past ? own[(j + 1) * size.channels] : x[i];
  }
  z += weight[c * size.taps + past] * to_float(x[i]);
  y[i] = from_float<T>(z * fast_sigmoid(z));
}

// One thread a channel of a row: later places are read before they are overwritten when the window moves in
// place.
template <class T>
__global__ void window_kernel(T* window, const T* x, const T* before, Starts starts, ShortConvSize size) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  if (i >= size.batch * size.channels) return;
  const int64_t b = i / size.channels, c = i % size.channels, past = size.taps - 1;
  const bool known = starts.given() && size.time > 0;
  for (int64_t j = 0; j < past; ++j) {
    const int64_t t = size.time - past + j;
    const T* from = t >= 0              ? x + (b * size.time + t) * size.channels + c
                    : before == nullptr ? nullptr
                                        : before + (b * past + past + t) * size.channels + c;
    const bool outside = from == nullptr || (known && t < starts.at(b, size.time - 1));
    window[(b * past + j) * size.channels + c] = outside ? from_float<T>(0) : *from;
  }
}

// f.template operator()<taps>()
template <class F>
void with_taps(int64_t taps, F&& f) {
  switch (taps) {
#define KATA_TAPS(n) \
  case n:            \
    return f.template operator()<n>();
    KATA_TAPS(1)
    KATA_TAPS(2)
    KATA_TAPS(3)
    KATA_TAPS(4)
    KATA_TAPS(5)
    KATA_TAPS(6)
    KATA_TAPS(7)
    KATA_TAPS(8)
    KATA_TAPS(9)
    KATA_TAPS(10)
    KATA_TAPS(11)
    KATA_TAPS(12)
    KATA_TAPS(13)
    KATA_TAPS(14)
    KATA_TAPS(15)
    KATA_TAPS(16)
#undef KATA_TAPS
  }
  KATA_CHECK(false, "short_conv: {} taps", taps);
}

int64_t blocks(int64_t run, int elements, const ShortConvSize& size) {
  return ceil_div(size.channels / elements * ceil_div(size.time, run) * size.batch, threads);
}

}  // namespace

template <class T>
void short_conv_forward(GpuStream stream, T* y, const ShortConvInput<T, Wide<T>>& in,
                        const ShortConvSize& size) {
  if (size.batch * size.time * size.channels == 0) return;
  const bool packed = size.taps <= 4 && packs<T>({y, in.x, in.window}, {size.channels});
  with_taps(size.taps, [&]<int taps>() {
    if constexpr (taps <= 4)
      if (packed) {
        constexpr int N = full_pack<T>;
        forward_kernel<T, N, taps><<<grid(blocks(forward_run, N, size)), threads, 0, stream>>>(y, in, size);
        return;
      }
    forward_kernel<T, 1, taps><<<grid(blocks(forward_run, 1, size)), threads, 0, stream>>>(y, in, size);
  });
  check_launch("short_conv_forward");
}

int64_t short_conv_partials(const ShortConvSize& size) {
  return std::max<int64_t>(1, size.batch * ceil_div(size.time, backward_run));
}

template <class T>
void short_conv_backward(GpuStream stream, T* dx, Wide<T>* dweight, Wide<T>* dbias, const T* dy,
                         const ShortConvInput<T, Wide<T>>& in, Wide<T>* partial, const ShortConvSize& size) {
  if (size.batch * size.time * size.channels == 0) return;
  constexpr int N = 4;  // more would not fit into the registers
  const bool packed = size.taps <= 4 && size.channels % N == 0 && packs<float>({dx, dy, in.x}, {});
  with_taps(size.taps, [&]<int taps>() {
    if constexpr (taps <= 4)
      if (packed) {
        backward_kernel<T, N, taps>
            <<<grid(blocks(backward_run, N, size)), threads, 0, stream>>>(dx, partial, dy, in, size);
        return;
      }
    backward_kernel<T, 1, taps>
        <<<grid(blocks(backward_run, 1, size)), threads, 0, stream>>>(dx, partial, dy, in, size);
  });
  check_launch("short_conv_backward");
  const int64_t columns = size.taps * size.channels;
  if (in.bias == nullptr)
    return add_partials(stream, dweight, partial, short_conv_partials(size), columns,
                        Transposed{size.taps, size.channels});
  add_partials(stream, dweight, partial, short_conv_partials(size), columns + size.channels,
               TransposedAndBias{dweight, dbias, {size.taps, size.channels}});
}

template <class T>
void short_conv_step(GpuStream stream, T* y, const T* x, T* window, const Wide<T>* weight,
                     const Wide<T>* bias, const ShortConvSize& size) {
  if (size.batch * size.channels == 0) return;
  step_kernel<T><<<grid(ceil_div(size.batch * size.channels, threads)), threads, 0, stream>>>(
      y, x, window, weight, bias, size);
  check_launch("short_conv_step");
}

template <class T>
void short_conv_window(GpuStream stream, T* window, const T* x, const T* before, const Starts& starts,
                       const ShortConvSize& size) {
  if (size.batch * size.channels * (size.taps - 1) == 0) return;
  window_kernel<T><<<grid(ceil_div(size.batch * size.channels, threads)), threads, 0, stream>>>(
      window, x, before, starts, size);
  check_launch("short_conv_window");
}

#define KATA_INSTANTIATE(T)                                                                                \
  template void short_conv_forward<T>(GpuStream, T*, const ShortConvInput<T, Wide<T>>&,                    \
                                      const ShortConvSize&);                                               \
  template void short_conv_backward<T>(GpuStream, T*, Wide<T>*, Wide<T>*, const T*,                        \
                                       const ShortConvInput<T, Wide<T>>&, Wide<T>*, const ShortConvSize&); \
  template void short_conv_step<T>(GpuStream, T*, const T*, T*, const Wide<T>*, const Wide<T>*,            \
                                   const ShortConvSize&);                                                  \
  template void short_conv_window<T>(GpuStream, T*, const T*, const T*, const Starts&, const ShortConvSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
