// What the kernels of the delta rule on the tensor cores share: the gates, and rows, values, states and sums
// of a chunk between memory and tiles (delta_mma.cuh). Rows and values have 64 numbers.
#pragma once

#include "kernels/common/delta_chunk.cuh"
#include "kernels/common/delta_mma.cuh"

namespace kata::cuda {

using RowTile = MmaTile<64, 1>;
using SplitTile = MmaTile<64, 2>;
constexpr int walk_columns = 32;  // of the values, in a block that walks over the chunks
using WalkTile = MmaTile<walk_columns, 2>;

// Shared memory, given out from its start.
class SharedRoom {
 public:
  __device__ explicit SharedRoom(void* start) : next_(static_cast<unsigned char*>(start)) {}
  template <class Tile>
  __device__ Tile tile() {
    return {reinterpret_cast<bf16*>(take(Tile::bytes))};
  }
  template <class X>
  __device__ X* room(int count = 1) {
    return reinterpret_cast<X*>(take(count * static_cast<int>(sizeof(X))));
  }

 private:
  __device__ unsigned char* take(int bytes) {
    unsigned char* at = next_;
    next_ += bytes;
    return at;
  }
  unsigned char* next_;
};

// Rows of a chunk to a tile, in the background; rows behind the last token are 0.
template <int threads = mma_threads>
__device__ __forceinline__ void copy_rows(const RowTile& tile, const TokenHeads<const bf16>& x, int64_t b,
                                          int64_t h, int64_t first, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 8; i += threads) {
    const int row = i / 8, column = i % 8 * 8;
    const bool inside = row < count;
    copy_async(tile.at(0, row, column), head_row(x, b, first + (inside ? row : 0), h) + column, inside);
  }
}

// x *= the decay between a row and a column, one of which is the query, and 0 where the query does not see
// the key and, if strict, between a token and itself. keys: rows are keys.
template <bool keys>
__device__ __forceinline__ void fade_sum(float (&x)[8][4], const ChunkGates& gates, const DeltaPlace& at,
                                         bool decays, bool strict) {
  for_each_sum(x, [&](float& value, int row, int column) {
    const int query = keys ? column : row, key = keys ? row : column;
    if (query >= at.count || key > query || (strict && key == query) ||
        gates.times.start[query] > at.first + key)
      value = 0;
    else if (decays)
      value *= ChunkFade::factor(gates.times.log_sum[query] - gates.times.log_sum[key]);
  });
}

// --- The gates of every chunk, [unit][4][64]: read, write, beta, and the chunk's own factor.
constexpr int gate_floats = 256;
static __global__ void chunk_gates_kernel(DeltaCall<bf16> call) {
  __shared__ ChunkGates gates;
  const DeltaPlace at = delta_place(call, blockIdx.x);
  load_gates(gates, call, at);
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  float* to = call.gates + at.unit * gate_floats;
  to[r] = gates.read[r];
  to[tile + r] = gates.write[r];
  to[2 * tile + r] = gates.beta[r];
  to[3 * tile + r] = gates.keep;
}
// Those of a unit to shared memory, in the background.
__device__ __forceinline__ void copy_gates(float* gates, const DeltaCall<bf16>& call, int64_t unit) {
  if (threadIdx.x < gate_floats / 4)
    copy_async(gates + 4 * threadIdx.x, call.gates + unit * gate_floats + 4 * threadIdx.x, true);
}

// x = 32 columns of a matrix of 64 x 64 floats.
__device__ __forceinline__ void load_walk(float (&x)[4][4], const float* from) {
  for_each_pair(x, [&](float& a, float& b, int row, int column) {
    const float2 pair = *reinterpret_cast<const float2*>(from + row * tile + column);
    a = pair.x;
    b = pair.y;
  });
}
__device__ __forceinline__ void store_walk(float* to, float (&x)[4][4]) {
  for_each_pair(x, [&](float a, float b, int row, int column) {
    *reinterpret_cast<float2*>(to + row * tile + column) = make_float2(a, b);
  });
}
// x = these columns of a chunk's errors or the like, [B, T, Hkv, 64]; 0 behind the last token.
__device__ __forceinline__ void load_values(float (&x)[4][4], const DeltaCall<bf16>& call, const float* from,
                                            const DeltaPlace& at, int e) {
  for_each_pair(x, [&](float& a, float& b, int row, int column) {
    float2 pair = make_float2(0, 0);
    if (row < at.count)
      pair =
          *reinterpret_cast<const float2*>(from + call.gate(at.b, at.first + row, at.kv) * tile + e + column);
    a = pair.x;
    b = pair.y;
  });
}
__device__ __forceinline__ void store_values(float* to, const DeltaCall<bf16>& call, float (&x)[4][4],
                                             const DeltaPlace& at, int e) {
  for_each_pair(x, [&](float a, float b, int row, int column) {
    if (row < at.count)
      *reinterpret_cast<float2*>(to + call.gate(at.b, at.first + row, at.kv) * tile + e + column) =
          make_float2(a, b);
  });
}
// Those of v, as pairs of bf16.
__device__ __forceinline__ void load_v(uint32_t (&x)[8], const DeltaCall<bf16>& call, const DeltaPlace& at,
                                       int e) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = mma_row(i % 2 * 2), column = mma_column(i / 2, 0);
    x[i] =
        row < at.count
            ? *reinterpret_cast<const uint32_t*>(head_row(call.v, at.b, at.first + row, at.kv) + e + column)
            : 0u;
  }
}
// A factor of 0 drops infinities too.
__device__ __forceinline__ float faded(float factor, float x) {
  return factor == 0 ? 0.f : factor * x;
}

// U = beta e of a chunk to a tile.
__device__ __forceinline__ void fill_written(const SplitTile& tile_of, const DeltaCall<bf16>& call,
                                             const DeltaPlace& at, const ChunkGates& gates) {
  fill_split(tile_of, [&](int row, int column) {
    if (row >= at.count) return make_float4(0, 0, 0, 0);
    const float4 x = *reinterpret_cast<const float4*>(call.errors +
                                                      call.gate(at.b, at.first + row, at.kv) * tile + column);
    const float beta = gates.beta[row];
    return make_float4(beta * x.x, beta * x.y, beta * x.z, beta * x.w);
  });
}
// A state of 64 x 64 to a tile.
__device__ __forceinline__ void fill_state(const SplitTile& tile_of, const float* state) {
  fill_split(tile_of, [&](int row, int column) {
    return *reinterpret_cast<const float4*>(state + row * tile + column);
  });
}
// Rows times a factor each.
__device__ __forceinline__ void scale_sum(float (&x)[8][4], const float* factor) {
  for_each_sum(x, [&](float& value, int row, int) { value = faded(factor[row], value); });
}
__device__ __forceinline__ void store_rows(const TokenHeads<bf16>& to, float (&x)[8][4], const DeltaPlace& at,
                                           int64_t h) {
  for_each_pair(x, [&](float a, float b, int row, int column) {
    if (row < at.count)
      *reinterpret_cast<uint32_t*>(head_row(to, at.b, at.first + row, h) + column) = bf16_pair(a, b);
  });
}

// dv of a chunk from dW, as unwind_kernel writes it; x: dW, then -g dv.
__device__ __forceinline__ void write_dv(float (&x)[4][4], const float (&error)[4][4], const uint32_t (&v)[8],
                                         const float* gates, const DeltaCall<bf16>& call,
                                         const DeltaPlace& at, int e, const TokenHeads<bf16>& dv,
                                         float* wide_dv, float* parts) {
  const int64_t rows = call.size.batch * call.size.tokens * call.size.kv_heads;
#pragma unroll
  for (int half = 0; half < 4; half += 2) {
    const int row = mma_row(half);
    const int64_t gate = call.gate(at.b, at.first + row, at.kv);
    const float beta = gates[2 * tile + row], read = gates[row];
    float strength = 0, answer = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float &a = x[n][half], &b = x[n][half + 1];
      const uint32_t value = v[2 * n + half / 2];
      strength += a * error[n][half] + b * error[n][half + 1];
      a *= beta;
      b *= beta;
      answer += a * (first_of(value) - error[n][half]) + b * (second_of(value) - error[n][half + 1]);
      if (row < at.count) {
        const int column = e + mma_column(n, 0);
        *reinterpret_cast<uint32_t*>(head_row(dv, at.b, at.first + row, at.kv) + column) = bf16_pair(a, b);
        *reinterpret_cast<float2*>(wide_dv + gate * tile + column) = make_float2(a, b);
      }
      a = -faded(read, a);
      b = -faded(read, b);
    }
    strength = lane_sum<4>(strength);
    answer = lane_sum<4>(answer);
    if (mma_lane() % 4 == 0 && row < at.count) {
      parts[blockIdx.y * rows + gate] = strength;
      parts[(gridDim.y + blockIdx.y) * rows + gate] = answer;
    }
  }
}

// -dv of a chunk to a tile.
__device__ __forceinline__ void fill_erased(const SplitTile& tile_of, const DeltaCall<bf16>& call,
                                            const DeltaPlace& at) {
  fill_split(tile_of, [&](int row, int column) {
    if (row >= at.count) return make_float4(0, 0, 0, 0);
    const float4 x =
        *reinterpret_cast<const float4*>(call.dv + call.gate(at.b, at.first + row, at.kv) * tile + column);
    return make_float4(-x.x, -x.y, -x.z, -x.w);
  });
}

// dx = the sum, and, unless share is null, `part` of <x, dx> of a row to share[row * heads + h].
__device__ __forceinline__ void finish_rows(const TokenHeads<bf16>& dx, float (&sum)[8][4], const RowTile& x,
                                            const DeltaCall<bf16>& call, const DeltaPlace& at, int64_t h,
                                            float* share, int64_t heads, float part = 1) {
  store_rows(dx, sum, at, h);
  if (share == nullptr) return;
#pragma unroll
  for (int half = 0; half < 4; half += 2) {
    const int row = mma_row(half);
    float product = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(x.at(0, row, mma_column(n, 0)));
      product += first_of(pair) * sum[n][half] + second_of(pair) * sum[n][half + 1];
    }
    product = lane_sum<4>(product);
    if (mma_lane() % 4 == 0 && row < at.count)
      share[(at.b * call.size.tokens + at.first + row) * heads + h] = part * product;
  }
}

}  // namespace kata::cuda
