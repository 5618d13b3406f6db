// Kernels of the chunked form (kernels/linear_attention_chunked.cu says how they follow each other).
//
// Each works in two directions. Forward in time, rows are queries and the other tokens are keys with values
// [v, 1]; `keys` swaps them: rows are keys, and the other tokens are queries with values [do / D, -<o, do> /
// D].
#pragma once

#include "kernels/common/chunk_tiles.cuh"
#include "ops/linear_attention.h"

namespace kata::cuda {

template <class T>
struct ChunkCall {
  DeviceMap map;
  AttentionSize size;
  bool normalised;
  int64_t chunk, chunks;  // tokens, count
  int columns;            // of the state: dv, and the mass
  int group;              // query heads of a key head
  int tile_values;        // columns of v in a tile of values
  TokenHeads<const T> q, k, v, d_o;
  const float *inverse, *mass_gradient;  // [B, T, Hq]: 1 / D and -<o, do> / D; null with a raw read
  ChunkFade fade;
  float* states;  // [pairs][slots][n][columns]
  // The round: pairs from first_pair on, chunks [begin, begin + slots).
  int64_t first_pair, begin, slots;
  bool carried;  // a state came in

  __device__ int64_t span_begin(int64_t c) const { return c * chunk; }
  __device__ int64_t span_end(int64_t c) const {
    return (c + 1) * chunk < size.tokens ? (c + 1) * chunk : size.tokens;
  }
};

// Where a block works: a chunk of a pair (batch row, key head).
struct ChunkPlace {
  int64_t unit, pair, b, kv, c, begin, end;
};
template <class T>
__device__ __forceinline__ ChunkPlace chunk_place(const ChunkCall<T>& call, int64_t unit) {
  const int64_t pair = call.first_pair + unit / call.slots, c = call.begin + unit % call.slots;
  return {unit,
          pair,
          pair / call.size.kv_heads,
          pair % call.size.kv_heads,
          c,
          call.span_begin(c),
          call.span_end(c)};
}

__device__ __forceinline__ int tile_count(int64_t first, int64_t end) {
  return static_cast<int>(end - first < tile ? end - first : tile);
}

// Values of rows first .. first + count, columns [e, e + n) and after them the mass, to
// w[r * row + j * column]; what is not there is 0. queries: [do / D, ..] of query head h, else [v, 1] of key
// head h. scale: a factor a row, or null.
template <bool queries, class T>
__device__ __forceinline__ void load_values(float* w, int row, int column, const ChunkCall<T>& call,
                                            int64_t b, int64_t h, int64_t first, int count, int e, int n,
                                            const float* scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < tile; r += tile_threads / 32) {
    const int64_t at = (b * call.size.tokens + first + r) * call.size.heads + h;
    const T* x = r >= count ? nullptr
                 : queries  ? head_row(call.d_o, b, first + r, h)
                            : head_row(call.v, b, first + r, h);
    const float factor = scale == nullptr ? 1.f : scale[r];
    const bool divided = queries && call.normalised && r < count;
    const float inverse = divided ? call.inverse[at] : 1.f;
    for (int j = lane; j < value_columns; j += 32) {
      float value = 0;
      if (r < count && j < n) value = to_float(x[e + j]) * inverse;
      if (divided && inverse == 0) value = 0;
      if (r < count && j == n && call.normalised) value = queries ? call.mass_gradient[at] : 1.f;
      w[r * row + j * column] = factor * value;
    }
  }
}

// Rows p .. p + tile of a state, columns as load_values has them.
template <class T>
__device__ __forceinline__ void load_state(float* w, const ChunkCall<T>& call, int64_t unit, int p, int e,
                                           int n) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int r = static_cast<int>(threadIdx.x) / 32; r < tile; r += tile_threads / 32) {
    const float* row = call.states + (unit * call.map.features + p + r) * call.columns;
    for (int j = lane; j < value_columns; j += 32) {
      float value = 0;
      if (p + r < call.map.features) {
        if (j < n) value = row[e + j];
        if (j == n && call.normalised) value = row[call.columns - 1];
      }
      w[r * value_stride + j] = value;
    }
  }
}

__device__ __forceinline__ void value_offsets(int (&offset)[5]) {
#pragma unroll
  for (int j = 0; j < 5; ++j) offset[j] = thread_column() + 16 * j;
}

// --- What the tokens of a chunk add to its state: f(X)^T [values], a tile of features and columns a block.
template <class T>
int64_t totals_shared(const ChunkCall<T>& call) {
  return (tile * left_stride + tile * (call.map.width | 1) + tile * value_stride + tile) * int64_t{4};
}
template <class T, bool queries>
__global__ void __launch_bounds__(tile_threads) totals_kernel(ChunkCall<T> call) {
  extern __shared__ __align__(16) float shared[];
  const int stride = call.map.width | 1;
  float *f = shared, *u = f + tile * left_stride, *w = u + tile * stride, *scale = w + tile * value_stride;
  const ChunkPlace at = chunk_place(call, blockIdx.x);
  const int p = static_cast<int>(blockIdx.y) * tile, mine = static_cast<int>(threadIdx.x) % tile;
  const int e = static_cast<int>(blockIdx.z) * call.tile_values;
  const int n = min(call.tile_values, static_cast<int>(call.size.value_width) - e);
  const bool inside = p + mine < call.map.features;
  const FeatureEntry entry = feature_entry(call.map, inside ? p + mine : 0);
  const int64_t group = call.group;
  int offset[5];
  value_offsets(offset);
  float acc[4][5] = {};
  for (int64_t i = 0; i < (queries ? group : 1); ++i)
    for (int64_t first = at.begin; first < at.end; first += tile) {
      const int count = tile_count(first, at.end);
      const int64_t h = queries ? at.kv * group + i : at.kv;
      if (threadIdx.x < tile) {
        const int64_t t = first + threadIdx.x;
        scale[threadIdx.x] = static_cast<int>(threadIdx.x) >= count ? 0.f
                             : queries ? call.fade.read(at.b, at.pair, t, at.begin)
                                       : call.fade.write(at.b, at.pair, t, at.end - 1);
      }
      load_lifted(u, stride, 1, queries ? call.q : call.k, at.b, h, first, count, call.map);
      __syncthreads();
      load_values<queries>(w, value_stride, 1, call, at.b, h, first, count, e, n, scale);
      for (int t = static_cast<int>(threadIdx.x) / tile; t < tile; t += tile_threads / tile)
        f[t * left_stride + mine] = inside ? feature_of(call.map, entry, u + t * stride, 1) : 0.f;
      __syncthreads();
      multiply(acc, f, w, value_stride, offset, count);
      __syncthreads();
    }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = p + thread_row() + i;
    if (row >= call.map.features) continue;
    float* to = call.states + (at.unit * call.map.features + row) * call.columns;
#pragma unroll
    for (int j = 0; j < 5; ++j) {
      if (offset[j] < n) to[e + offset[j]] = acc[i][j];
      if (offset[j] == n && call.normalised && blockIdx.z == 0) to[call.columns - 1] = acc[i][j];
    }
  }
}

// --- Totals to the states before each chunk, in time or against it; a thread has one number of the state.
// from: the state that comes in, or null (0); to: what is left after the round, or null.
template <class T, bool backward>
__global__ void scan_kernel(ChunkCall<T> call, const float* from, float* to) {
  const int64_t size = int64_t{call.map.features} * call.columns;
  const int64_t e = blockIdx.x * int64_t{blockDim.x} + threadIdx.x, index = blockIdx.y;
  if (e >= size) return;
  const int64_t pair = call.first_pair + index, b = pair / call.size.kv_heads;
  float* states = call.states + index * call.slots * size + e;
  float state = from == nullptr ? 0.f : from[index * size + e];
  for (int64_t i = 0; i < call.slots; ++i) {
    const int64_t slot = backward ? call.slots - 1 - i : i, c = call.begin + slot;
    const float total = states[slot * size];
    states[slot * size] = state;
    // Whatever came in is dropped, infinities too, where a document begins inside the chunk.
    const float keep = call.fade.read(b, pair, call.span_end(c) - 1, call.span_begin(c));
    state = keep == 0 ? total : keep * state + total;
  }
  if (to != nullptr) to[index * size + e] = state;
}

// --- Rows times the state, and the scores inside the chunk times the other tokens' values.
template <class T>
int64_t read_shared(const ChunkCall<T>& call) {
  const int64_t width = call.map.width;
  return (width * left_stride + tile * left_stride + tile * (width | 1) + tile * value_stride + 2 * tile) *
             4 +
         2 * static_cast<int64_t>(sizeof(TileTimes));
}
template <class T, bool keys>
__global__ void __launch_bounds__(tile_threads, 2)
    read_kernel(ChunkCall<T> call, TokenHeads<T> out, float* mass) {
  extern __shared__ __align__(16) float shared[];
  const int width = call.map.width, stride = width | 1;
  TileTimes* own_times = reinterpret_cast<TileTimes*>(shared);
  TileTimes* other_times = own_times + 1;
  float *own = reinterpret_cast<float*>(own_times + 2), *f = own + width * left_stride;
  float *other = f + tile * left_stride, *w = other + tile * stride, *scale = w + tile * value_stride;
  unsigned* table = reinterpret_cast<unsigned*>(scale + tile);

  const int64_t group = call.group, heads = keys ? 1 : group;
  const ChunkPlace at = chunk_place(call, blockIdx.x / heads);
  const int64_t h = keys ? at.kv : at.kv * group + blockIdx.x % heads;
  const int64_t first = at.begin + blockIdx.y * int64_t{tile};
  if (first >= at.end) return;
  const int count = tile_count(first, at.end), thread = static_cast<int>(threadIdx.x);
  const int e = static_cast<int>(blockIdx.z) * call.tile_values;
  const int n = min(call.tile_values, static_cast<int>(call.size.value_width) - e);
  load_lifted(own, 1, left_stride, keys ? call.k : call.q, at.b, h, first, count, call.map);
  load_times(*own_times, call.fade, at.b, at.pair, first, count);
  if (thread < tile)
    scale[thread] = thread >= count ? 0.f
                    : keys          ? call.fade.write(at.b, at.pair, first + thread, at.end - 1)
                                    : call.fade.read(at.b, at.pair, first + thread, at.begin);
  int offset[5];
  value_offsets(offset);
  float acc[4][5] = {};
  __syncthreads();

  if (keys ? at.c + 1 < call.chunks : at.c > 0 || call.carried) {
    for (int p = 0; p < call.map.features; p += tile) {
      load_state(w, call, at.unit, p, e, n);
      if (thread < tile)
        table[thread] = packed_entry(feature_entry(call.map, min(p + thread, call.map.features - 1)));
      __syncthreads();
      for (int r = thread / tile; r < tile; r += tile_threads / tile)
        f[r * left_stride + thread % tile] =
            feature_of(call.map, unpacked_entry(table[r]), own + thread % tile, left_stride);
      __syncthreads();
      multiply(acc, f, w, value_stride, offset, min(tile, call.map.features - p));
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 5; ++j)
        acc[i][j] = scale[thread_row() + i] == 0 ? 0.f : acc[i][j] * scale[thread_row() + i];
  }

  for (int64_t i = 0; i < (keys ? group : 1); ++i)
    for (int64_t y = keys ? first : at.begin; y < (keys ? at.end : first + 1); y += tile) {
      const int others = tile_count(y, at.end);
      const int64_t head = keys ? at.kv * group + i : at.kv;
      load_lifted(other, stride, 1, keys ? call.q : call.k, at.b, head, y, others, call.map);
      load_values<keys>(w, value_stride, 1, call, at.b, head, y, others, e, n, nullptr);
      load_times(*other_times, call.fade, at.b, at.pair, y, others);
      __syncthreads();
      float a[4][4] = {};
      for (int dot = 0; dot < score_dots(call.map); ++dot) {
        float r[4][4];
        tile_dot<keys>(r, own, other, stride, call.map, dot);
#pragma unroll
        for (int row = 0; row < 4; ++row)
#pragma unroll
          for (int j = 0; j < 4; ++j) a[row][j] += call.map.first_order ? r[row][j] : r[row][j] * r[row][j];
      }
      fade_tile<keys>(a, *own_times, *other_times, first, count, y, others, call.fade.log_sums != nullptr);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        *reinterpret_cast<float4*>(f + (thread_column() + 16 * j) * left_stride + thread_row()) =
            make_float4(a[0][j], a[1][j], a[2][j], a[3][j]);
      __syncthreads();
      multiply(acc, f, w, value_stride, offset, others);
      __syncthreads();
    }

  const bool divide = !keys && call.normalised;
  if (divide) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 5; ++j)
        if (offset[j] == n) scale[thread_row() + i] = acc[i][j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = thread_row() + i;
    if (r >= count) continue;
    T* to = head_row(out, at.b, first + r, h) + e;
#pragma unroll
    for (int j = 0; j < 5; ++j) {
      if (offset[j] >= n) continue;
      float value = acc[i][j];
      if (divide) value = scale[r] <= static_cast<float>(mass_floor) ? 0.f : value / scale[r];
      to[offset[j]] = from_float<T>(value);
    }
  }
  if (divide && blockIdx.z == 0 && thread < count)
    mass[(at.b * call.size.tokens + first + thread) * call.size.heads + h] = scale[thread];
}

}  // namespace kata::cuda
