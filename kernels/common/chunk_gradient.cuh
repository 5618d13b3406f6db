// The gradient of q or k in the chunked form: a tile of rows a block, all of its parts in one kernel.
#pragma once

#include "kernels/common/chunk_kernels.cuh"

namespace kata::cuda {

template <class T>
int64_t gradient_shared(const ChunkCall<T>& call) {
  const int64_t width = call.map.width;
  return (2 * width * left_stride + value_columns * left_stride + tile * left_stride + tile * (width | 1) +
          tile * value_stride + 2 * tile) *
             4 +
         2 * static_cast<int64_t>(sizeof(TileTimes));
}

// du of the own rows += what df (left factor: [features][rows]) of a tile of features passes back. A thread
// has one row, and every fourth column, so that no two write the same number.
__device__ __forceinline__ void add_feature_gradients(float* du, const float* df, const float* u,
                                                      const unsigned* table, int features,
                                                      const DeviceMap& map) {
  const int row = static_cast<int>(threadIdx.x) % tile, quarter = static_cast<int>(threadIdx.x) / tile;
  for (int p = 0; p < features; ++p) {
    const FeatureEntry entry = unpacked_entry(table[p]);
    const float d = df[p * left_stride + row];
    if (map.first_order) {
      if (entry.a % 4 == quarter) du[entry.a * left_stride + row] += d;
      continue;
    }
    for_each_product(map, entry, [&](int a, int b, float factor) {
      if (a % 4 == quarter) du[a * left_stride + row] += factor * d * u[b * left_stride + row];
      if (b % 4 == quarter) du[b * left_stride + row] += factor * d * u[a * left_stride + row];
    });
  }
}

// du of the own rows += sum over other rows of dr (left factor: [others][rows]) times the other row.
template <bool keys>
__device__ __forceinline__ void add_dot_gradients(float* du, const float* dr, const float* other, int stride,
                                                  int others, const DeviceMap& map, int dot) {
  for (int g = 0; g < score_segments(map); ++g) {
    const ScoreSegment s = score_segment<keys>(map, dot, g);
    for (int first = 0; first < s.length; first += 64) {
      int offset[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) offset[j] = s.other + min(first + thread_column() + 16 * j, s.length - 1);
      float part[4][4] = {};
      multiply(part, dr, other, stride, offset, others);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = first + thread_column() + 16 * j;
        if (column >= s.length) continue;
        float* to = du + (s.own + column) * left_stride + thread_row();
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] += s.sign * part[i][j];
      }
    }
  }
}

__device__ __forceinline__ void store_left(float* to, const float (&x)[4][4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    *reinterpret_cast<float4*>(to + (thread_column() + 16 * j) * left_stride + thread_row()) =
        make_float4(x[0][j], x[1][j], x[2][j], x[3][j]);
}

// dx of queries, or of keys. share: [B, T, heads of x], the row's part of the decay's gradient, or null.
template <class T, bool keys>
__global__ void __launch_bounds__(tile_threads, 2)
    gradient_kernel(ChunkCall<T> call, TokenHeads<T> dx, float* share) {
  extern __shared__ __align__(16) float shared[];
  const int width = call.map.width, stride = width | 1;
  TileTimes* own_times = reinterpret_cast<TileTimes*>(shared);
  TileTimes* other_times = own_times + 1;
  float *own = reinterpret_cast<float*>(own_times + 2), *du = own + width * left_stride;
  float *own_values = du + width * left_stride, *f = own_values + value_columns * left_stride;
  float *other = f + tile * left_stride, *w = other + tile * stride, *scale = w + tile * value_stride;
  unsigned* table = reinterpret_cast<unsigned*>(scale + tile);

  const int64_t group = call.group, heads = keys ? 1 : group;
  const ChunkPlace at = chunk_place(call, blockIdx.x / heads);
  const int64_t h = keys ? at.kv : at.kv * group + blockIdx.x % heads;
  const int64_t first = at.begin + blockIdx.y * int64_t{tile};
  if (first >= at.end) return;
  const int count = tile_count(first, at.end), thread = static_cast<int>(threadIdx.x);
  const TokenHeads<const T>& x = keys ? call.k : call.q;
  load_lifted(own, 1, left_stride, x, at.b, h, first, count, call.map);
  load_times(*own_times, call.fade, at.b, at.pair, first, count);
  for (int i = thread; i < width * left_stride; i += tile_threads) du[i] = 0;
  if (thread < tile)
    scale[thread] = thread >= count ? 0.f
                    : keys          ? call.fade.write(at.b, at.pair, first + thread, at.end - 1)
                                    : call.fade.read(at.b, at.pair, first + thread, at.begin);
  int offset[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) offset[j] = (thread_column() + 16 * j) * value_stride;

  // x += own values times what `load` puts in w, over all columns of the values
  const int values = static_cast<int>(call.size.value_width);
  const bool one_tile = values <= call.tile_values;
  const auto load_own = [&](int e, int n) {
    load_values<!keys>(own_values, 1, left_stride, call, at.b, h, first, count, e, n, nullptr);
  };
  const auto times_values = [&](float(&sum)[4][4], auto&& load) {
    for (int e = 0; e < values; e += call.tile_values) {
      const int n = min(call.tile_values, values - e);
      if (!one_tile) load_own(e, n);
      load(e, n);
      __syncthreads();
      // The mass counts once.
      multiply(sum, own_values, w, 1, offset, n + (call.normalised && e == 0 ? 1 : 0));
      __syncthreads();
    }
  };
  if (one_tile) load_own(0, values);

  if (keys ? at.c + 1 < call.chunks : at.c > 0 || call.carried)
    for (int p = 0; p < call.map.features; p += tile) {
      if (thread < tile)
        table[thread] = packed_entry(feature_entry(call.map, min(p + thread, call.map.features - 1)));
      float df[4][4] = {};
      times_values(df, [&](int e, int n) { load_state(w, call, at.unit, p, e, n); });
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          df[i][j] = scale[thread_row() + i] == 0 ? 0.f : df[i][j] * scale[thread_row() + i];
      store_left(f, df);
      __syncthreads();
      add_feature_gradients(du, f, own, table, min(tile, call.map.features - p), call.map);
      __syncthreads();
    }

  for (int64_t i = 0; i < (keys ? group : 1); ++i)
    for (int64_t y = keys ? first : at.begin; y < (keys ? at.end : first + 1); y += tile) {
      const int others = tile_count(y, at.end);
      const int64_t head = keys ? at.kv * group + i : at.kv;
      load_lifted(other, stride, 1, keys ? call.q : call.k, at.b, head, y, others, call.map);
      load_times(*other_times, call.fade, at.b, at.pair, y, others);
      float da[4][4] = {};
      times_values(da, [&](int e, int n) {
        load_values<keys>(w, value_stride, 1, call, at.b, head, y, others, e, n, nullptr);
      });
      fade_tile<keys>(da, *own_times, *other_times, first, count, y, others, call.fade.log_sums != nullptr);
      for (int dot = 0; dot < score_dots(call.map); ++dot) {
        float r[4][4];
        if (!call.map.first_order) tile_dot<keys>(r, own, other, stride, call.map, dot);
#pragma unroll
        for (int row = 0; row < 4; ++row)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            r[row][j] = call.map.first_order ? da[row][j] : 2 * r[row][j] * da[row][j];
        store_left(f, r);
        __syncthreads();
        add_dot_gradients<keys>(du, f, other, stride, others, call.map, dot);
        __syncthreads();
      }
    }

  const int lane = thread % 32;
  for (int r = thread / 32; r < count; r += tile_threads / 32) {
    float sum = 0;
    for (int c = lane; c < width; c += 32) sum += own[c * left_stride + r] * du[c * left_stride + r];
    sum = lane_sum<32>(sum);
    const int64_t all = keys ? call.size.kv_heads : call.size.heads;
    if (share != nullptr && lane == 0)
      share[(at.b * call.size.tokens + first + r) * all + h] = call.map.first_order ? sum : sum / 2;
    lift_row_backward(head_row(dx, at.b, first + r, h), du + r, left_stride, head_row(x, at.b, first + r, h),
                      call.map, lane);
  }
}

}  // namespace kata::cuda
