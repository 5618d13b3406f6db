// The delta rule against time: dv, and the gradients of the states.
#pragma once

#include "kernels/common/delta_forward.cuh"

namespace kata::cuda {

// --- What the queries of a chunk pass back to its U, inside the chunk: pull = sum over query heads of
// (G kappa(q, k))^T do, 64 columns a block.
template <class T>
__global__ void __launch_bounds__(tile_threads, 2) pull_kernel(DeltaCall<T> call, float* pull) {
  extern __shared__ __align__(16) float shared[];
  const int width = call.map.width, stride = width | 1, columns = call.columns;
  ChunkGates& gates = *reinterpret_cast<ChunkGates*>(shared);
  float *own = shared + sizeof(ChunkGates) / 4, *f = own + width * left_stride,
        *other = f + tile * left_stride;
  float* w = other + tile * stride;
  const DeltaPlace at = delta_place(call, blockIdx.x);
  const int e = static_cast<int>(blockIdx.y) * tile, n = min(tile, columns - e);
  int offset[4];
  column_offsets(offset);
  load_gates(gates, call, at);
  load_lifted(own, 1, left_stride, call.k, at.b, at.kv, at.first, at.count, call.map);
  float acc[4][4] = {};
  for (int64_t h = at.kv * call.group; h < (at.kv + 1) * call.group; ++h) {
    load_lifted(other, stride, 1, call.q, at.b, h, at.first, at.count, call.map);
    fill_tile<tile>(w, tile_stride, 1, at.count, n,
                    [&](int r, int j) { return to_float(head_row(call.d_o, at.b, at.first + r, h)[e + j]); });
    __syncthreads();
    float a[4][4];
    chunk_scores<true>(a, own, other, stride, call.map);
    fade_chunk<true>(a, gates, at, call.log != nullptr, false);
    store_left(f, a);
    __syncthreads();
    multiply(acc, f, w, tile_stride, offset, at.count);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = thread_row() + i;
      if (r < at.count && offset[j] < n)
        pull[call.gate(at.b, at.first + r, at.kv) * columns + e + offset[j]] = acc[i][j];
    }
}

// --- The chunks of a round against time; 16 N columns of a pair a block. wide_dv: pull on entry, dv before
// it is rounded on return. parts: [slices][B, T, Hkv], what these columns add to dbeta; then as many of
// <dv, v - e>. from: dS after the last chunk (null: 0), to: before the first (null: not wanted).
template <class T, int N>
int64_t unwind_shared(const DeltaCall<T>& call) {
  return (2 * tile * (call.map.width | 1) + tile * left_stride + 3 * tile * (16 * N + 1) + tile) *
             int64_t{4} +
         static_cast<int64_t>(sizeof(ChunkGates));
}
template <class T, int N>
__global__ void __launch_bounds__(tile_threads, 2)
    unwind_kernel(DeltaCall<T> call, TokenHeads<T> dv, float* wide_dv, float* parts, const float* from,
                  float* to) {
  extern __shared__ __align__(16) float shared[];
  constexpr int value_step = 16 * N + 1;
  const int stride = call.map.width | 1, columns = call.columns, features = call.map.features;
  ChunkGates& gates = *reinterpret_cast<ChunkGates*>(shared);
  float *f = shared + sizeof(ChunkGates) / 4, *u = f + tile * left_stride, *uq = u + tile * stride;
  float *w = uq + tile * stride, *x = w + tile * value_step, *y = x + tile * value_step;
  unsigned* table = reinterpret_cast<unsigned*>(y + tile * value_step);
  const int e = static_cast<int>(blockIdx.y) * 16 * N, n = min(16 * N, columns - e);
  const int64_t index = blockIdx.x, size = call.state_size();
  const int64_t rows = call.size.batch * call.size.tokens * call.size.kv_heads;
  int offset[N];
  column_offsets(offset);
  if (from != nullptr)
    copy_state<16 * N>(call.gradients + ((index + 1) * call.slots - 1) * size, from + index * size, features,
                       columns, e, n);

  for (int64_t slot = call.slots - 1; slot >= 0; --slot) {
    const DeltaPlace at = delta_place(call, index, slot);
    const float* after = call.gradients + at.unit * size;
    float* before = slot > 0        ? call.gradients + (at.unit - 1) * size
                    : to != nullptr ? to + index * size
                                    : nullptr;
    const bool empty = call.empty_after(at.c);
    load_gates(gates, call, at);
    load_lifted(u, stride, 1, call.k, at.b, at.kv, at.first, at.count, call.map);
    __syncthreads();
    float acc[4][N] = {};
    if (!empty) {
      read_state(acc, f, w, table, u, stride, 1, call.map, after, columns, e, n);
      scale_rows(acc, gates.write);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int r = thread_row() + i;
        const bool inside = r < at.count && offset[j] < n;
        const float pull =
            inside ? wide_dv[call.gate(at.b, at.first + r, at.kv) * columns + e + offset[j]] : 0.f;
        x[r * value_step + offset[j]] = inside ? pull + acc[i][j] : 0.f;
      }
    load_inverse(f, call.inverse + at.unit * tile * tile);
    __syncthreads();
    float dw[4][N] = {};
    multiply(dw, f, x, value_step, offset, at.count);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = thread_row() + i;
      const int64_t gate = call.gate(at.b, at.first + r, at.kv);
      float strength = 0, answer = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const bool inside = r < at.count && offset[j] < n;
        const float written = gates.beta[r] * dw[i][j];
        if (inside) {
          const float error = call.errors[gate * columns + e + offset[j]];
          T* to_dv = head_row(dv, at.b, at.first + r, at.kv) + e + offset[j];
          strength += dw[i][j] * error;
          answer += written * (to_float(head_row(call.v, at.b, at.first + r, at.kv)[e + offset[j]]) - error);
          *to_dv = from_float<T>(written);
          wide_dv[gate * columns + e + offset[j]] = written;
        }
        x[r * value_step + offset[j]] = inside ? -gates.read[r] * written : 0.f;
      }
      strength = lane_sum<16>(strength);
      answer = lane_sum<16>(answer);
      if (thread_column() == 0 && r < at.count) {
        parts[blockIdx.y * rows + gate] = strength;
        parts[(gridDim.y + blockIdx.y) * rows + gate] = answer;
      }
    }
    __syncthreads();
    // dS = keep dS - f(K)^T g dv + f(Q)^T g do, a query head at a time
    for (int i = 0; before != nullptr && i < call.group; ++i) {
      const int64_t h = at.kv * call.group + i;
      load_lifted(uq, stride, 1, call.q, at.b, h, at.first, at.count, call.map);
      fill_tile<16 * N>(y, value_step, 1, at.count, n, [&](int r, int j) {
        return gates.read[r] == 0
                   ? 0.f
                   : gates.read[r] * to_float(head_row(call.d_o, at.b, at.first + r, h)[e + j]);
      });
      __syncthreads();
      for (int p = 0; p < features; p += tile) {
        float sum[4][N] = {};
        if (i == 0) {
          features_by_feature(f, u, stride, call.map, p);
          multiply(sum, f, x, value_step, offset, at.count);
          __syncthreads();
        }
        features_by_feature(f, uq, stride, call.map, p);
        multiply(sum, f, y, value_step, offset, at.count);
#pragma unroll
        for (int row = 0; row < 4; ++row)
#pragma unroll
          for (int j = 0; j < N; ++j) {
            const int feature = p + thread_row() + row;
            if (feature >= features || offset[j] >= n) continue;
            const int64_t place = int64_t{feature} * columns + e + offset[j];
            float old = 0;
            if (i > 0)
              old = before[place];
            else if (!empty && gates.keep != 0)
              old = gates.keep * after[place];
            before[place] = old + sum[row][j];
          }
        __syncthreads();
      }
    }
    __syncthreads();
  }
}

}  // namespace kata::cuda
