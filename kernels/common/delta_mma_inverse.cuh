// The inverse of a chunk's system on the tensor cores.
#pragma once

#include "kernels/common/delta_mma_tiles.cuh"

namespace kata::cuda {

// The sum over the groups of squared dot products of own rows with rows of other.
template <int groups>
__device__ __forceinline__ void squared_scores(float (&x)[8][4], const MmaLeft<1>& own,
                                               const RowTile& other) {
  constexpr int steps = 4 / groups;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[n][i] = 0;
  const auto add = [&]<int group>() {
    float dot[8][4] = {};
    multiply_part<true, group * steps, steps, 0, 8>(dot, own, other);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) x[n][i] += dot[n][i] * dot[n][i];
  };
  add.template operator()<0>();
  if constexpr (groups >= 2) add.template operator()<1>();
  if constexpr (groups >= 4) {
    add.template operator()<2>();
    add.template operator()<3>();
  }
}
// A block of 16 x 16 of a split tile, rows 16 i .., columns 16 j .., as the transpose of a factor: a left one
// where `left`, else a right one.
struct MmaBlock {
  uint32_t at[2][4];
};
template <bool left>
__device__ __forceinline__ void load_block(MmaBlock& block, const SplitTile& tile_of, int i, int j) {
  const int row = 16 * i + mma_lane() % 8 + mma_lane() / 16 * 8, column = 16 * j + mma_lane() / 8 % 2 * 8;
#pragma unroll
  for (int part = 0; part < 2; ++part) load_matrices<left>(block.at[part], tile_of.at(part, row, column));
}
__device__ __forceinline__ void multiply_block(float (&x)[2][4], const MmaBlock& left,
                                               const MmaBlock& right) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    mma(x[j], left.at[0], right.at[0][2 * j], right.at[0][2 * j + 1]);
    mma(x[j], left.at[1], right.at[0][2 * j], right.at[0][2 * j + 1]);
    mma(x[j], left.at[0], right.at[1][2 * j], right.at[1][2 * j + 1]);
  }
}
__device__ __forceinline__ void split_block(MmaBlock& block, const float (&x)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const SplitPair pair = split(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
    block.at[0][i] = pair.high;
    block.at[1][i] = pair.low;
  }
}

// The inverses of the unit lower triangles on the diagonal ([64][17] numbers), by forward substitution in
// fp32; to the diagonal blocks of a tile.
__device__ __forceinline__ void invert_diagonal(const SplitTile& to, const float* diagonal) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= tile) return;
  const int first = thread / 16 * 16, j = thread % 16;
  float y[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float* row = diagonal + (first + i) * 17;
    float sum = i == j ? 1.f : 0.f;
#pragma unroll
    for (int m = 0; m < i; ++m) sum -= row[m] * y[m];
    y[i] = sum;
    const bf16 high = from_float<bf16>(sum);
    *to.at(0, first + i, first + j) = high;
    *to.at(1, first + i, first + j) = from_float<bf16>(sum - to_float(high));
  }
}

// --- The inverse X of a chunk's system, of I + L forward, of I + N backward (see inverse_kernel): its
// transpose in two planes of bf16, [unit][2][64][64], in the room of 64 x 64 floats. groups: of squared
// scores; 0 for dot products.
//
// With the blocks a_im of the system and D_i, the inverses on its diagonal, X_ij = -D_i (sum of a_im X_mj
// over m = j .. i - 1). A warp has a column j of blocks, transposed, so that every sum is the next product's
// left factor and stays in registers.
constexpr int inverse_mma_shared =
    RowTile::bytes + SplitTile::bytes + 64 * 17 * 4 + static_cast<int>(sizeof(ChunkGates));
template <int groups, bool backward>
__global__ void __launch_bounds__(mma_threads, 4) inverse_mma_kernel(DeltaCall<bf16> call) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom room(shared);
  const RowTile k = room.tile<RowTile>();
  const SplitTile a = room.tile<SplitTile>();
  ChunkGates& gates = *room.room<ChunkGates>();
  float* diagonal = room.room<float>(64 * 17);
  const DeltaPlace at = delta_place(call, blockIdx.x);
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  commit_copies();
  load_gates(gates, call, at);
  await_copies<0>();
  __syncthreads();
  {
    MmaLeft<1> rows;
    load_left<false>(rows, k);
    float score[8][4] = {};
    if constexpr (groups > 0)
      squared_scores<groups>(score, rows, k);
    else
      multiply<true>(score, rows, k);
    fade_sum<false>(score, gates, at, call.log != nullptr, true);
    for_each_sum(score, [&](float& value, int t, int s) {
      value *= gates.beta[backward ? t : s];
      if (t / 16 == s / 16) diagonal[t * 17 + s % 16] = value;
    });
    store_split(a, score);
  }
  __syncthreads();
  invert_diagonal(a, diagonal);
  __syncthreads();

  const int column = static_cast<int>(threadIdx.x) / 32;
  bf16* to = reinterpret_cast<bf16*>(call.inverse + at.unit * tile * tile);
  const auto write = [&](int i, const MmaBlock& block) {
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int row = 16 * column + mma_lane() / 4 + n % 2 * 8;
        *reinterpret_cast<uint32_t*>(to + (part * tile + row) * tile + 16 * i + mma_column(n / 2, 0)) =
            block.at[part][n];
      }
  };
  MmaBlock done[4];  // X_mj transposed, for m = j, j + 1, ..
  load_block<true>(done[0], a, column, column);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int i = column + step;
    if (i >= 4) {
      write(i - 4, MmaBlock{});  // above the diagonal
      continue;
    }
    if (step > 0) {
      float sum[2][4] = {}, x[2][4] = {};
      MmaBlock left, right;
#pragma unroll
      for (int m = 0; m < step; ++m) {
        load_block<false>(right, a, i, column + m);
        multiply_block(sum, done[m], right);
      }
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[n][e] = -sum[n][e];
      split_block(left, sum);
      load_block<false>(right, a, i, i);
      multiply_block(x, left, right);
      split_block(done[step], x);
    }
    write(i, done[step]);
  }
}
__device__ __forceinline__ void copy_inverse(const SplitTile& to, const DeltaCall<bf16>& call, int64_t unit) {
  const bf16* from = reinterpret_cast<const bf16*>(call.inverse + unit * tile * tile);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 2 * 64 * 8; i += mma_threads)
    copy_async(to.at(i / 512, i / 8 % 64, i % 8 * 8), from + i * 8, true);
}

}  // namespace kata::cuda
