// Causal softmax attention in tiles of 64 queries and 64 keys, in fp32 on the CUDA cores (tiles and products:
// kernels/common/chunk_tiles.cuh). In bf16 at widths of 32, 64 and 128 the tensor cores do it
// (kernels/common/mma_attention.h), on Hopper at width 64 without documents kernels of their own.
//
// Floor: T (d + dv) operations a token and head forward, T (3 d + 2 dv) backward.
#include "kernels/common/chunk_tiles.cuh"
#include "kernels/common/hopper.h"
#include "kernels/common/mma_attention.h"
#include "kernels/common/rows.cuh"
#include "ops/softmax_attention.h"

namespace kata::cuda {

namespace {

constexpr int most_width = 128;  // of keys and of values
constexpr float log2_e = 1.44269504088896341f;

template <class T>
struct Call {
  AttentionSize size;  // tokens: queries
  int64_t keys;        // tokens of k and v
  float scale;
  TokenHeads<const T> q, k, v, d_o;
  const float* lse;
  const float* along;  // <o, do> [B, T, Hq]
  Starts starts;
  int64_t first_query;
  int group;
};

// Rows first .. first + count of one head to u[r * row + i * column]; other rows are 0.
template <class T>
__device__ __forceinline__ void load_rows(float* u, int row, int column, const TokenHeads<const T>& x,
                                          int64_t b, int64_t h, int64_t first, int count, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < tile; r += tile_threads / 32) {
    const T* from = x.data + b * x.batch + (first + r) * x.token + h * x.head;
    for (int i = lane; i < width; i += 32) u[r * row + i * column] = r < count ? to_float(from[i]) : 0.f;
  }
}

__device__ __forceinline__ int tile_rows(int64_t first, int64_t end) {
  return static_cast<int>(end - first < tile ? end - first : tile);
}

// The first key that query t sees.
template <class T>
__device__ __forceinline__ int64_t first_key(const Call<T>& call, int64_t b, int64_t t) {
  if (!call.starts.given()) return 0;
  const int64_t start = call.first_query + call.starts.at(b, t);
  return start > 0 ? start : 0;
}

// Where a thread's columns lie in rows of a right factor; columns beyond the width are read from its start.
template <int N>
__device__ __forceinline__ void column_offsets(int (&offset)[N], int width) {
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const int c = thread_column() + 16 * j;
    offset[j] = c < width ? c : 0;
  }
}

// a = scale <own, other>, -inf (or 0 after `exponent`) where the query does not see the key. own: [width]
// left factor; other: rows of width | 1.
template <class T>
__device__ __forceinline__ void scores(float (&a)[4][4], const float* own, const float* other,
                                       const Call<T>& call) {
  const int width = static_cast<int>(call.size.width), stride = width | 1;
  int offset[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) offset[j] = (thread_column() + 16 * j) * stride;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) a[i][j] = 0;
  multiply(a, own, other, 1, offset, width);
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) a[i][j] *= call.scale;
}

__device__ __forceinline__ void store_left(float* f, const float (&a)[4][4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    *reinterpret_cast<float4*>(f + (thread_column() + 16 * j) * left_stride + thread_row()) =
        make_float4(a[0][j], a[1][j], a[2][j], a[3][j]);
}

template <class T>
int64_t forward_shared(const Call<T>& call) {
  return (call.size.width * left_stride + tile * (call.size.width | 1) + tile * (call.size.value_width | 1) +
          tile * left_stride) *
         int64_t{4};
}
template <class T, int N>
__global__ void __launch_bounds__(tile_threads) forward_kernel(Call<T> call, TokenHeads<T> o, float* lse) {
  extern __shared__ __align__(16) float shared[];
  const int width = static_cast<int>(call.size.width), value_width = static_cast<int>(call.size.value_width);
  const int k_stride = width | 1, v_stride = value_width | 1;
  float *own = shared, *f = own + width * left_stride, *k = f + tile * left_stride, *v = k + tile * k_stride;
  const int64_t b = blockIdx.y / call.size.heads, h = blockIdx.y % call.size.heads;
  const int64_t first = (gridDim.x - 1 - blockIdx.x) * int64_t{tile};  // the longest rows first
  const int count = tile_rows(first, call.size.tokens);
  load_rows(own, 1, left_stride, call.q, b, h, first, count, width);
  float top[4], sum[4] = {}, acc[4][N] = {};
  int64_t seen[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    top[i] = -INFINITY;
    const int row = thread_row() + i;
    seen[i] = first_key(call, b, first + (row < count ? row : 0));
  }
  int offset[N];
  column_offsets(offset, value_width);
  const int64_t begin = first_key(call, b, first) / tile * tile, end = call.first_query + first + count;
  for (int64_t y = begin; y < end; y += tile) {
    const int others = tile_rows(y, end);
    __syncthreads();
    load_rows(k, k_stride, 1, call.k, b, h / call.group, y, others, width);
    load_rows(v, v_stride, 1, call.v, b, h / call.group, y, others, value_width);
    __syncthreads();
    float a[4][4];
    scores(a, own, k, call);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t query = call.first_query + first + thread_row() + i;
      float highest = top[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t key = y + thread_column() + 16 * j;
        if (key > query || key < seen[i] || key >= end) a[i][j] = -INFINITY;
        highest = fmaxf(highest, a[i][j]);
      }
      highest = lane_max<16>(highest);
      const float shift = highest == -INFINITY ? 0 : highest;  // no key seen yet
      const float fade = exp2f((top[i] - shift) * log2_e);
      float total = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[i][j] = exp2f((a[i][j] - shift) * log2_e);
        total += a[i][j];
      }
      sum[i] = sum[i] * fade + total;
      top[i] = highest;
#pragma unroll
      for (int j = 0; j < N; ++j) acc[i][j] *= fade;
    }
    store_left(f, a);
    __syncthreads();
    multiply(acc, f, v, v_stride, offset, others);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float all = lane_sum<16>(sum[i]);
    const int row = thread_row() + i;
    if (row >= count) continue;
    T* to = o.data + b * o.batch + (first + row) * o.token + h * o.head;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int c = thread_column() + 16 * j;
      if (c < value_width) to[c] = from_float<T>(acc[i][j] / all);
    }
    if (thread_column() == 0)
      lse[(b * call.size.tokens + first + row) * call.size.heads + h] = top[i] + logf(all);
  }
}

// <o, do> of every row; a warp has one.
template <class T>
__global__ void along_kernel(float* along, TokenHeads<const T> o, TokenHeads<const T> d_o,
                             AttentionSize size) {
  const int64_t row = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (row >= size.batch * size.tokens * size.heads) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t h = row % size.heads, t = row / size.heads % size.tokens, b = row / size.heads / size.tokens;
  const T *x = o.data + b * o.batch + t * o.token + h * o.head,
          *dx = d_o.data + b * d_o.batch + t * d_o.token + h * d_o.head;
  float sum = 0;
  for (int64_t j = lane; j < size.value_width; j += 32) sum += to_float(x[j]) * to_float(dx[j]);
  sum = lane_sum<32>(sum);
  if (lane == 0) along[row] = sum;
}

// In place: a from scores to dS = P (<do, v> - <o, do>), p = P; rows are queries, or keys.
template <class T, bool keys>
__device__ __forceinline__ void score_gradient(float (&a)[4][4], float (&p)[4][4], const float (&dp)[4][4],
                                               const Call<T>& call, int64_t b, int64_t h, int64_t own_first,
                                               int own_count, int64_t other_first, int other_count) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int own = thread_row() + i, other = thread_column() + 16 * j;
      const int64_t query = keys ? other_first + other : own_first + own;
      const int64_t key = keys ? own_first + own : other_first + other;
      const bool visible =
          own < own_count && other < other_count && key <= query && key >= first_key(call, b, query);
      const int64_t row = visible ? (b * call.size.tokens + query) * call.size.heads + h : 0;
      p[i][j] = visible ? exp2f((a[i][j] - call.lse[row]) * log2_e) : 0.f;
      a[i][j] = visible ? p[i][j] * (dp[i][j] - call.along[row]) * call.scale : 0.f;
    }
}

template <class T>
int64_t gradient_shared(const Call<T>& call) {
  return (call.size.width * left_stride + call.size.value_width * left_stride + 2 * tile * left_stride +
          tile * (call.size.width | 1) + tile * (call.size.value_width | 1)) *
         int64_t{4};
}

template <class T, int N>
__global__ void __launch_bounds__(tile_threads) query_kernel(Call<T> call, TokenHeads<T> dq) {
  extern __shared__ __align__(16) float shared[];
  const int width = static_cast<int>(call.size.width), value_width = static_cast<int>(call.size.value_width);
  const int k_stride = width | 1, v_stride = value_width | 1;
  float *own = shared, *own_d = own + width * left_stride, *f = own_d + value_width * left_stride;
  float *k = f + tile * left_stride, *v = k + tile * k_stride;
  const int64_t b = blockIdx.y / call.size.heads, h = blockIdx.y % call.size.heads;
  const int64_t first = (gridDim.x - 1 - blockIdx.x) * int64_t{tile};
  const int count = tile_rows(first, call.size.tokens);
  load_rows(own, 1, left_stride, call.q, b, h, first, count, width);
  load_rows(own_d, 1, left_stride, call.d_o, b, h, first, count, value_width);
  float acc[4][N] = {};
  int offset[N], v_offset[4];
  column_offsets(offset, width);
#pragma unroll
  for (int j = 0; j < 4; ++j) v_offset[j] = (thread_column() + 16 * j) * v_stride;
  for (int64_t y = first_key(call, b, first) / tile * tile; y < first + count; y += tile) {
    const int others = tile_rows(y, call.size.tokens);
    __syncthreads();
    load_rows(k, k_stride, 1, call.k, b, h / call.group, y, others, width);
    load_rows(v, v_stride, 1, call.v, b, h / call.group, y, others, value_width);
    __syncthreads();
    float a[4][4], p[4][4], dp[4][4] = {};
    scores(a, own, k, call);
    multiply(dp, own_d, v, 1, v_offset, value_width);
    score_gradient<T, false>(a, p, dp, call, b, h, first, count, y, others);
    store_left(f, a);
    __syncthreads();
    multiply(acc, f, k, k_stride, offset, others);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = thread_row() + i;
    if (row >= count) continue;
    T* to = dq.data + b * dq.batch + (first + row) * dq.token + h * dq.head;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (thread_column() + 16 * j < width) to[thread_column() + 16 * j] = from_float<T>(acc[i][j]);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(tile_threads) key_kernel(Call<T> call, TokenHeads<T> dk, TokenHeads<T> dv) {
  extern __shared__ __align__(16) float shared[];
  const int width = static_cast<int>(call.size.width), value_width = static_cast<int>(call.size.value_width);
  const int q_stride = width | 1, d_stride = value_width | 1;
  float *own = shared, *own_v = own + width * left_stride, *f = own_v + value_width * left_stride;
  float *g = f + tile * left_stride, *q = g + tile * left_stride, *d = q + tile * q_stride;
  const int64_t b = blockIdx.y / call.size.kv_heads, kv = blockIdx.y % call.size.kv_heads;
  const int64_t first = blockIdx.x * int64_t{tile};
  const int count = tile_rows(first, call.size.tokens);
  load_rows(own, 1, left_stride, call.k, b, kv, first, count, width);
  load_rows(own_v, 1, left_stride, call.v, b, kv, first, count, value_width);
  float acc_k[4][N] = {}, acc_v[4][N] = {};
  int offset[N], v_columns[N], d_offset[4];
  column_offsets(offset, width);
  column_offsets(v_columns, value_width);
#pragma unroll
  for (int j = 0; j < 4; ++j) d_offset[j] = (thread_column() + 16 * j) * d_stride;
  for (int i = 0; i < call.group; ++i) {
    const int64_t h = kv * call.group + i;
    for (int64_t y = first; y < call.size.tokens; y += tile) {
      // Nothing later sees these keys once a document has begun behind them.
      if (first_key(call, b, y) >= first + count) break;
      const int others = tile_rows(y, call.size.tokens);
      __syncthreads();
      load_rows(q, q_stride, 1, call.q, b, h, y, others, width);
      load_rows(d, d_stride, 1, call.d_o, b, h, y, others, value_width);
      __syncthreads();
      float a[4][4], p[4][4], dp[4][4] = {};
      scores(a, own, q, call);
      multiply(dp, own_v, d, 1, d_offset, value_width);
      score_gradient<T, true>(a, p, dp, call, b, h, first, count, y, others);
      store_left(f, a);
      store_left(g, p);
      __syncthreads();
      multiply(acc_k, f, q, q_stride, offset, others);
      multiply(acc_v, g, d, d_stride, v_columns, others);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = thread_row() + i;
    if (row >= count) continue;
    T* to_k = dk.data + b * dk.batch + (first + row) * dk.token + kv * dk.head;
    T* to_v = dv.data + b * dv.batch + (first + row) * dv.token + kv * dv.head;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int c = thread_column() + 16 * j;
      if (c < width) to_k[c] = from_float<T>(acc_k[i][j]);
      if (c < value_width) to_v[c] = from_float<T>(acc_v[i][j]);
    }
  }
}

// A block has a head of a row; each of its warps takes every fourth cached token, and their sums are joined
// in order.
constexpr int step_warps = 4, step_lanes = 32, step_columns = most_width / step_lanes;
template <class T>
__global__ void step_kernel(SoftmaxStep<T> call, float scale, AttentionSize size) {
  __shared__ float tops[step_warps], sums[step_warps], values[step_warps][most_width];
  const int64_t b = blockIdx.x / size.heads, h = blockIdx.x % size.heads, kv = h / size.group();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t begin = call.first == nullptr ? 0 : call.first[b];
  const int64_t end = call.last == nullptr ? size.tokens : *call.last + 1;
  float own[step_columns], acc[step_columns] = {}, top = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < step_columns; ++i)
    own[i] = lane + 32 * i < size.width ? to_float(call.q.at(b, 0, h)[lane + 32 * i]) * scale : 0.f;
  for (int64_t t = begin + warp; t < end; t += step_warps) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < step_columns; ++i)
      if (lane + 32 * i < size.width) dot += own[i] * to_float(call.k.at(b, t, kv)[lane + 32 * i]);
    dot = lane_sum<32>(dot);
    const float highest = fmaxf(top, dot), fade = expf(top - highest), weight = expf(dot - highest);
    sum = sum * fade + weight;
    top = highest;
#pragma unroll
    for (int i = 0; i < step_columns; ++i)
      if (lane + 32 * i < size.value_width)
        acc[i] = acc[i] * fade + weight * to_float(call.v.at(b, t, kv)[lane + 32 * i]);
  }
  if (lane == 0) {
    tops[warp] = top;
    sums[warp] = sum;
  }
#pragma unroll
  for (int i = 0; i < step_columns; ++i) values[warp][lane + 32 * i] = acc[i];
  __syncthreads();
  float highest = -INFINITY, all = 0;
  for (int w = 0; w < step_warps; ++w) highest = fmaxf(highest, tops[w]);
  for (int w = 0; w < step_warps; ++w) all += sums[w] * expf(tops[w] - highest);
  for (int64_t c = threadIdx.x; c < size.value_width; c += step_warps * 32) {
    float value = 0;
    for (int w = 0; w < step_warps; ++w) value += values[w][c] * expf(tops[w] - highest);
    call.o.at(b, 0, h)[c] = from_float<T>(value / all);
  }
}

// Threads count packs of N elements: width / N of a head, then heads, then tokens.
template <class T, int N>
__global__ void append_kernel(SoftmaxAppend<T> call, AttentionSize size) {
  const int64_t packs = size.width / N, i = blockIdx.x * int64_t{tile_threads} + threadIdx.x;
  if (i >= size.batch * size.tokens * size.kv_heads * packs) return;
  const int64_t c = i % packs * N, h = i / packs % size.kv_heads, token = i / packs / size.kv_heads;
  const int64_t b = token / size.tokens, t = token % size.tokens;
  const int64_t position = call.place == nullptr ? call.position : *call.place;
  float v[N];  // a float holds every bf16
  load<N>(v, call.x.at(b, t, h) + c);
  store<N>(call.cache.at(b, position + t, h) + c, v);
}

void check_sizes(const AttentionSize& size) {
  KATA_CHECK(size.width <= most_width && size.value_width <= most_width,
             "softmax_attention: widths up to 128");
  KATA_CHECK(size.batch * size.heads <= 65535, "softmax_attention: batch times heads");
}

// f.template operator()<N>(): columns of a thread.
template <class F>
void with_columns(const AttentionSize& size, F&& f) {
  const int64_t width = std::max(size.width, size.value_width);
  if (width <= 32) return f.template operator()<2>();
  if (width <= 64) return f.template operator()<4>();
  return f.template operator()<8>();
}

template <class Kernel, class... Args>
void launch(Kernel kernel, dim3 blocks, int64_t shared, cudaStream_t stream, Args... args) {
  allow_shared(kernel, static_cast<size_t>(shared));
  kernel<<<blocks, tile_threads, static_cast<size_t>(shared), stream>>>(args...);
  check_launch("softmax_attention");
}

dim3 tiles_of(int64_t tokens, int64_t heads) {
  return {grid(ceil_div(tokens, tile)), grid(heads), 1};
}

}  // namespace

template <class T>
void softmax_attention_forward(GpuStream stream, const SoftmaxForward<T>& c, float scale,
                               const AttentionSize& size) {
  if (size.batch * size.tokens == 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    if (c.first_query == 0 && !c.starts.given() && on_hopper(size, c.o, c.q, c.k, c.v))
      return sm90::attention_forward<sm90::Score::softmax>(
          stream, {hopper_view(c.o), c.lse, hopper_view(c.q), hopper_view(c.k), hopper_view(c.v)}, scale,
          hopper_size(size));
    if (mma_takes(size, scale, c.o, c.q, c.k, c.v))
      return mma_attention_forward<TileScore::softmax>(
          stream, {c.o, c.lse, c.q, c.k, c.v, {nullptr, c.starts}, c.first_query}, scale, size);
  }
  check_sizes(size);
  const Call<T> call = {
      size,          size.tokens + c.first_query,   scale, c.q, c.k, c.v, {}, nullptr, nullptr, c.starts,
      c.first_query, static_cast<int>(size.group())};
  with_columns(size, [&]<int N>() {
    launch(forward_kernel<T, N>, tiles_of(size.tokens, size.batch * size.heads), forward_shared(call), stream,
           call, c.o, c.lse);
  });
}

int64_t softmax_attention_backward_scratch(const AttentionSize& size) {
  return std::max(backward_scratch(size.batch * size.tokens * size.heads, size),
                  mma_attention_scratch(true, size));
}

template <class T>
void softmax_attention_backward(GpuStream stream, const SoftmaxBackward<T>& c, float scale,
                                const AttentionSize& size) {
  if (size.batch * size.tokens == 0) return;
  if constexpr (std::is_same_v<T, bf16>) {
    if (!c.starts.given() && on_hopper(size, c.o, c.q, c.k, c.v, c.d_o, c.dq, c.dk, c.dv))
      return sm90::attention_backward<sm90::Score::softmax>(
          stream,
          {hopper_view(c.dq), hopper_view(c.dk), hopper_view(c.dv), hopper_view(c.d_o), hopper_view(c.q),
           hopper_view(c.k), hopper_view(c.v), hopper_view(c.o), c.lse, c.scratch},
          scale, hopper_size(size));
    if (mma_takes(size, scale, c.dq, c.dk, c.dv, c.d_o, c.q, c.k, c.v, c.o))
      return mma_attention_backward<TileScore::softmax>(
          stream,
          {c.dq, c.dk, c.dv, c.d_o, c.q, c.k, c.v, c.o, c.lse, {nullptr, c.starts}, nullptr, c.scratch},
          scale, size);
  }
  check_sizes(size);
  const int64_t rows = size.batch * size.tokens * size.heads;
  along_kernel<T><<<grid(ceil_div(rows, 8)), 256, 0, stream>>>(c.scratch, c.o, c.d_o, size);
  check_launch("softmax_attention rows");
  const Call<T> call = {size,  size.tokens, scale,     c.q,      c.k, c.v,
                        c.d_o, c.lse,       c.scratch, c.starts, 0,   static_cast<int>(size.group())};
  with_columns(size, [&]<int N>() {
    launch(query_kernel<T, N>, tiles_of(size.tokens, size.batch * size.heads), gradient_shared(call), stream,
           call, c.dq);
    launch(key_kernel<T, N>, tiles_of(size.tokens, size.batch * size.kv_heads), gradient_shared(call), stream,
           call, c.dk, c.dv);
  });
}

template <class T>
void softmax_attention_step(GpuStream stream, const SoftmaxStep<T>& c, float scale,
                            const AttentionSize& size) {
  if (size.batch == 0) return;
  check_sizes(size);
  step_kernel<T><<<grid(size.batch * size.heads), step_warps * 32, 0, stream>>>(c, scale, size);
  check_launch("softmax_attention_step");
}

template <class T>
void softmax_attention_append(GpuStream stream, const SoftmaxAppend<T>& c, const AttentionSize& size) {
  const int64_t elements = size.batch * size.tokens * size.kv_heads * size.width;
  if (elements == 0) return;
  const bool packed = packs<T>({c.x.data, c.cache.data}, {size.width, c.x.batch, c.x.token, c.x.head,
                                                          c.cache.batch, c.cache.token, c.cache.head});
  with_pack<T>(packed, [&]<int N>() {
    append_kernel<T, N><<<grid(ceil_div(elements / N, tile_threads)), tile_threads, 0, stream>>>(c, size);
  });
  check_launch("softmax_attention_append");
}

#define KATA_INSTANTIATE(T)                                                                               \
  template void softmax_attention_forward<T>(GpuStream, const SoftmaxForward<T>&, float,                  \
                                             const AttentionSize&);                                       \
  template void softmax_attention_backward<T>(GpuStream, const SoftmaxBackward<T>&, float,                \
                                              const AttentionSize&);                                      \
  template void softmax_attention_step<T>(GpuStream, const SoftmaxStep<T>&, float, const AttentionSize&); \
  template void softmax_attention_append<T>(GpuStream, const SoftmaxAppend<T>&, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
