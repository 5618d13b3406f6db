// The delta rule forward: errors and states chunk after chunk, then what the queries read.
#pragma once

#include "kernels/common/delta_chunk.cuh"

namespace kata::cuda {

// acc = f(rows of u) times columns [e, e + n) of a state, not yet decayed: f and w are room for a tile.
template <int N>
__device__ __forceinline__ void read_state(float (&acc)[4][N], float* f, float* w, unsigned* table,
                                           const float* u, int row, int column, const DeviceMap& map,
                                           const float* state, int columns, int e, int n) {
  int offset[N];
  column_offsets(offset);
  for (int p = 0; p < map.features; p += tile) {
    load_state_tile<16 * N>(w, state, map.features, columns, p, e, n);
    features_by_token(f, table, u, row, column, map, p);
    multiply(acc, f, w, 16 * N + 1, offset, min(tile, map.features - p));
    __syncthreads();
  }
}
// Rows times a factor each; a factor of 0 drops infinities too.
template <int N>
__device__ __forceinline__ void scale_rows(float (&acc)[4][N], const float* factor) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < N; ++j)
      acc[i][j] = factor[thread_row() + i] == 0 ? 0.f : acc[i][j] * factor[thread_row() + i];
}
// This block's columns of a state, copied.
template <int width>
__device__ __forceinline__ void copy_state(float* to, const float* from, int features, int columns, int e,
                                           int n) {
  for (int i = static_cast<int>(threadIdx.x); i < features * width; i += tile_threads) {
    const int64_t at = int64_t{i / width} * columns + e + i % width;
    if (i % width < n) to[at] = from[at];
  }
  __syncthreads();
}

// --- The chunks of a round in order. A block has 16 N columns of the values of a pair: columns do not see
// each other. states: S before each chunk is left; from: S before the first (null: empty), to: after the
// last (null: not wanted). solve: errors are computed and written, else they are there.
template <class T, int N>
int64_t errors_shared(const DeltaCall<T>& call) {
  return (tile * (call.map.width | 1) + tile * left_stride + 2 * tile * (16 * N + 1) + tile) * int64_t{4} +
         static_cast<int64_t>(sizeof(ChunkGates));
}
template <class T, int N, bool solve>
__global__ void __launch_bounds__(tile_threads, 2)
    errors_kernel(DeltaCall<T> call, float* errors, const float* from, float* to) {
  extern __shared__ __align__(16) float shared[];
  constexpr int value_step = 16 * N + 1;
  const int stride = call.map.width | 1, columns = call.columns, features = call.map.features;
  ChunkGates& gates = *reinterpret_cast<ChunkGates*>(shared);
  float *f = shared + sizeof(ChunkGates) / 4, *u = f + tile * left_stride, *w = u + tile * stride;
  float* x = w + tile * value_step;
  unsigned* table = reinterpret_cast<unsigned*>(x + tile * value_step);
  const int e = static_cast<int>(blockIdx.y) * 16 * N, n = min(16 * N, columns - e);
  const int64_t index = blockIdx.x, size = call.state_size();
  int offset[N];
  column_offsets(offset);
  if (from != nullptr)
    copy_state<16 * N>(call.states + index * call.slots * size, from + index * size, features, columns, e, n);

  for (int64_t slot = 0; slot < call.slots; ++slot) {
    const DeltaPlace at = delta_place(call, index, slot);
    const float* state = call.states + at.unit * size;
    float* next = slot + 1 < call.slots ? call.states + (at.unit + 1) * size
                  : to != nullptr       ? to + index * size
                                        : nullptr;
    const bool empty = call.empty_before(at.c);
    const auto error_at = [&](int r, int j) {
      return call.gate(at.b, at.first + r, at.kv) * columns + e + j;
    };
    load_gates(gates, call, at);
    load_lifted(u, stride, 1, call.k, at.b, at.kv, at.first, at.count, call.map);
    __syncthreads();
    if (solve) {
      float acc[4][N] = {};
      if (!empty) {
        read_state(acc, f, w, table, u, stride, 1, call.map, state, columns, e, n);
        scale_rows(acc, gates.read);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const int r = thread_row() + i;
          const bool inside = r < at.count && offset[j] < n;
          x[r * value_step + offset[j]] =
              inside ? to_float(head_row(call.v, at.b, at.first + r, at.kv)[e + offset[j]]) - acc[i][j] : 0.f;
        }
      load_inverse(f, call.inverse + at.unit * tile * tile);
      __syncthreads();
      float error[4][N] = {};
      multiply(error, f, x, value_step, offset, at.count);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const int r = thread_row() + i;
          if (r < at.count && offset[j] < n) errors[error_at(r, offset[j])] = error[i][j];
          x[r * value_step + offset[j]] = gates.write[r] * gates.beta[r] * error[i][j];
        }
    } else {
      fill_tile<16 * N>(x, value_step, 1, at.count, n, [&](int r, int j) {
        return gates.write[r] * gates.beta[r] * call.errors[error_at(r, j)];
      });
    }
    __syncthreads();
    if (next != nullptr)
      for (int p = 0; p < features; p += tile) {
        features_by_feature(f, u, stride, call.map, p);
        float acc[4][N] = {};
        multiply(acc, f, x, value_step, offset, at.count);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const int row = p + thread_row() + i;
            if (row >= features || offset[j] >= n) continue;
            const int64_t place = int64_t{row} * columns + e + offset[j];
            next[place] = empty || gates.keep == 0 ? acc[i][j] : gates.keep * state[place] + acc[i][j];
          }
        __syncthreads();
      }
    __syncthreads();
  }
}

// --- o of a chunk of one query head, 64 columns a block.
template <class T>
int64_t delta_read_shared(const DeltaCall<T>& call) {
  const int64_t width = call.map.width;
  return (width * left_stride + tile * (width | 1) + tile * left_stride + tile * tile_stride + tile) * 4 +
         static_cast<int64_t>(sizeof(ChunkGates));
}
template <class T>
__global__ void __launch_bounds__(tile_threads, 2) delta_read_kernel(DeltaCall<T> call, TokenHeads<T> o) {
  extern __shared__ __align__(16) float shared[];
  const int width = call.map.width, stride = width | 1, columns = call.columns;
  ChunkGates& gates = *reinterpret_cast<ChunkGates*>(shared);
  float *own = shared + sizeof(ChunkGates) / 4, *f = own + width * left_stride,
        *other = f + tile * left_stride;
  float* w = other + tile * stride;
  unsigned* table = reinterpret_cast<unsigned*>(w + tile * tile_stride);
  const DeltaPlace at = delta_place(call, blockIdx.x / call.group);
  const int64_t h = at.kv * call.group + blockIdx.x % call.group;
  const int e = static_cast<int>(blockIdx.y) * tile, n = min(tile, columns - e);
  int offset[4];
  column_offsets(offset);
  load_gates(gates, call, at);
  load_lifted(own, 1, left_stride, call.q, at.b, h, at.first, at.count, call.map);
  load_lifted(other, stride, 1, call.k, at.b, at.kv, at.first, at.count, call.map);
  __syncthreads();
  float acc[4][4] = {};
  if (!call.empty_before(at.c)) {
    read_state(acc, f, w, table, own, 1, left_stride, call.map, call.states + at.unit * call.state_size(),
               columns, e, n);
    scale_rows(acc, gates.read);
  }
  float a[4][4];
  chunk_scores<false>(a, own, other, stride, call.map);
  fade_chunk<false>(a, gates, at, call.log != nullptr, false);
  store_left(f, a);
  fill_tile<tile>(w, tile_stride, 1, at.count, n, [&](int r, int j) {
    return gates.beta[r] * call.errors[call.gate(at.b, at.first + r, at.kv) * columns + e + j];
  });
  __syncthreads();
  multiply(acc, f, w, tile_stride, offset, at.count);
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = thread_row() + i;
      if (r < at.count && offset[j] < n)
        head_row(o, at.b, at.first + r, h)[e + offset[j]] = from_float<T>(acc[i][j]);
    }
}

}  // namespace kata::cuda
