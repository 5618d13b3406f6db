// The delta rule of squared scores: what its kernels share, the walk over the chunks, and what is read.
//
// A chunk meets others in order of their distance. Between two of them the decay is a factor of the token of
// the one, a factor of the token of the other, and one of all chunks between (ChunkGates: read, write, keep).
// The factors of tokens are in U' = write U and Z = -read dv, kept split, [unit][2][64][64]; a factor of 0
// between, at the start of a document, ends the walk.
#pragma once

#include "kernels/common/delta_mma_inverse.cuh"

namespace kata::cuda {

// sum += what the gradient d of scores of own rows with rows of other passes back to the own rows.
template <int groups>
__device__ __forceinline__ void add_squared(float (&sum)[8][4], const float (&d)[8][4], const MmaLeft<1>& own,
                                            const RowTile& other) {
  constexpr int steps = 4 / groups, wide = 8 / groups;
  const auto add = [&]<int group>() {
    float dot[8][4] = {};
    multiply_part<true, group * steps, steps, 0, 8>(dot, own, other);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) dot[n][i] *= 2 * d[n][i];
    MmaLeft<2> scores;
    split_left(scores, dot);
    multiply_part<false, 0, 4, group * wide, group * wide + wide>(sum, scores, other);
  };
  add.template operator()<0>();
  if constexpr (groups >= 2) add.template operator()<1>();
  if constexpr (groups >= 4) {
    add.template operator()<2>();
    add.template operator()<3>();
  }
}

// fetch(n, stage) starts copies of the n-th of `count` other chunks; use(n, stage, between) reads them and
// returns the factor that stands between for the next one. Copies that the caller began have arrived at the
// first use. Every thread may write to both stages afterwards.
template <class Fetch, class Use>
__device__ __forceinline__ void for_each_other(int64_t count, Fetch&& fetch, Use&& use) {
  float between = 1;
  if (count > 0) fetch(int64_t{0}, 0);
  commit_copies();
  for (int64_t n = 0; n < count && between != 0; ++n) {
    await_copies<0>();
    __syncthreads();
    if (n + 1 < count) fetch(n + 1, static_cast<int>((n + 1) % 2));
    commit_copies();
    between = use(n, static_cast<int>(n % 2), between);
  }
  await_copies<0>();
  __syncthreads();
}
__device__ __forceinline__ void scale_all(float (&x)[8][4], float factor) {
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[n][i] *= factor;
}

// Planes of a unit, columns [e, e + width), to a tile.
template <int width>
__device__ __forceinline__ void copy_planes(const MmaTile<width, 2>& to, const bf16* planes, int64_t unit,
                                            int e) {
  constexpr int pieces = width / 8;
  const bf16* from = planes + unit * 2 * tile * tile + e;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 2 * 64 * pieces; i += mma_threads) {
    const int row = i / pieces, column = i % pieces * 8;  // row: of both planes, one under the other
    copy_async(to.at(row / 64, row % 64, column), from + row * tile + column, true);
  }
}
__device__ __forceinline__ void store_planes(bf16* planes, int64_t unit, int e, float (&x)[4][4]) {
  bf16* to = planes + unit * 2 * tile * tile + e;
  for_each_pair(x, [&](float a, float b, int row, int column) {
    const SplitPair pair = split(a, b);
    *reinterpret_cast<uint32_t*>(to + row * tile + column) = pair.high;
    *reinterpret_cast<uint32_t*>(to + (tile + row) * tile + column) = pair.low;
  });
}

// --- The chunks in order, 32 columns of the values of a pair a block. Forward: errors and U'. Backward,
// against time: what unwind_kernel writes, and Z. The sums over the chunks before (behind) take the place of
// what the state answers. Other chunks are fetched one ahead, then the inverse in their room.
struct SquaredWalk {
  float* errors;        // forward
  TokenHeads<bf16> dv;  // backward, and the next two
  float *wide_dv, *parts;
  bf16* planes;  // U' or Z
};
struct SquaredWalkRoom {
  static constexpr int stage_bytes = RowTile::bytes + WalkTile::bytes;
  static constexpr int bytes = RowTile::bytes + WalkTile::bytes + 2 * stage_bytes + 3 * gate_floats * 4;
  __device__ explicit SquaredWalkRoom(void* start) {
    SharedRoom room(start);
    own = room.tile<RowTile>();
    sum = room.tile<WalkTile>();
    stages_ = room.room<bf16>(2 * stage_bytes / 2);
    gates_ = room.room<float>(3 * gate_floats);
  }
  __device__ RowTile keys(int stage) const { return {stages_ + stage * stage_bytes / 2}; }
  __device__ WalkTile values(int stage) const { return {stages_ + stage * stage_bytes / 2 + RowTile::plane}; }
  __device__ SplitTile inverse() const { return {stages_}; }
  __device__ float* gates(int stage) const { return gates_ + stage * gate_floats; }  // 2: of the own chunk
  RowTile own;
  WalkTile sum;

 private:
  bf16* stages_;
  float* gates_;
};
template <int groups, bool backward>
__global__ void __launch_bounds__(mma_threads, 4)
    squared_walk_kernel(DeltaCall<bf16> call, SquaredWalk walk) {
  extern __shared__ __align__(16) float shared[];
  const SquaredWalkRoom room(shared);
  const float* gates = room.gates(2);
  const int e = static_cast<int>(blockIdx.y) * walk_columns;
  const DeltaPlace pair = delta_place(call, blockIdx.x, 0);
  for (int64_t step = 0; step < call.chunks; ++step) {
    const DeltaPlace at = delta_place(call, pair, backward ? call.chunks - 1 - step : step);
    copy_rows(room.own, call.k, at.b, at.kv, at.first, at.count);
    copy_gates(room.gates(2), call, at.unit);
    float x[4][4] = {};
    for_each_other(
        step,
        [&](int64_t n, int stage) {
          const DeltaPlace other = delta_place(call, at, backward ? at.c + 1 + n : at.c - 1 - n);
          copy_rows(room.keys(stage), call.k, other.b, other.kv, other.first, other.count);
          copy_planes(room.values(stage), walk.planes, other.unit, e);
          copy_gates(room.gates(stage), call, other.unit);
        },
        [&](int64_t, int stage, float between) {
          MmaLeft<1> own;
          load_left<false>(own, room.own);
          float score[8][4];
          squared_scores<groups>(score, own, room.keys(stage));
          scale_all(score, between);
          MmaLeft<2> scores;
          split_left(scores, score);
          multiply<false>(x, scores, room.values(stage));
          return between * room.gates(stage)[3 * tile];
        });
    copy_inverse(room.inverse(), call, at.unit);
    commit_copies();
    uint32_t v[8];
    load_v(v, call, at, e);
    if (backward) {
      float pull[4][4];
      load_values(pull, call, walk.wide_dv, at, e);
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) x[n][i] = pull[n][i] + faded(gates[tile + mma_row(i)], x[n][i]);
    } else {
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t pair = v[2 * n + i / 2];
          x[n][i] = (i % 2 == 0 ? first_of(pair) : second_of(pair)) - faded(gates[mma_row(i)], x[n][i]);
        }
    }
    store_split(room.sum, x);
    float error[4][4];
    if (backward) load_values(error, call, call.errors, at, e);
    await_copies<0>();
    __syncthreads();
    float y[4][4] = {};
    {
      MmaLeft<2> solver;
      load_left<!backward>(solver, room.inverse());
      multiply<false>(y, solver, room.sum);
    }
    if (backward) {
      write_dv(y, error, v, gates, call, at, e, walk.dv, walk.wide_dv, walk.parts);
    } else {
      store_values(walk.errors, call, y, at, e);
      for_each_sum(y, [&](float& value, int row, int) {
        value = faded(gates[tile + row], gates[2 * tile + row] * value);
      });
    }
    store_planes(walk.planes, at.unit, e, y);
    __syncthreads();
  }
}

// Room of a kernel that has a chunk and meets others: two stages of a tile of rows and a split one (or two
// tiles of rows), and their gates.
struct MeetingRoom {
  static constexpr int stage_bytes = RowTile::bytes + SplitTile::bytes;
  static constexpr int bytes = 2 * stage_bytes + 2 * (tile + 4) * 4;
  __device__ explicit MeetingRoom(SharedRoom& room) {
    stages_ = room.room<bf16>(2 * stage_bytes / 2);
    gates_ = room.room<float>(2 * (tile + 4));
  }
  __device__ RowTile rows(int stage) const { return {stages_ + stage * stage_bytes / 2}; }
  __device__ SplitTile split(int stage) const { return {stages_ + stage * stage_bytes / 2 + RowTile::plane}; }
  __device__ RowTile more_rows(int stage) const { return {split(stage).data}; }
  // What a token reads, and the chunk's own factor.
  __device__ const float* read(int stage) const { return gates_ + stage * (tile + 4); }
  __device__ float keep(int stage) const { return read(stage)[tile]; }
  __device__ ChunkGates& own_gates() const { return *reinterpret_cast<ChunkGates*>(rows(1).data); }

  __device__ void copy_gates(int stage, const DeltaCall<bf16>& call, int64_t unit) const {
    const int i = static_cast<int>(threadIdx.x) * 4;
    if (i > tile) return;
    copy_async(gates_ + stage * (tile + 4) + i, call.gates + unit * gate_floats + (i < tile ? i : 3 * tile),
               true);
  }

 private:
  bf16* stages_;
  float* gates_;
};

// --- o of a chunk of one query head; the last chunks, which have most to do, first.
struct SquaredPlace {
  DeltaPlace at;
  int64_t h;
};
__device__ __forceinline__ SquaredPlace squared_place(const DeltaCall<bf16>& call, bool last_first) {
  const int64_t row = call.pairs * call.group, slot = blockIdx.x / row, head = blockIdx.x % row;
  const DeltaPlace at = delta_place(call, head / call.group, last_first ? call.chunks - 1 - slot : slot);
  return {at, at.kv * call.group + head % call.group};
}
constexpr int squared_read_shared = MeetingRoom::bytes + RowTile::bytes;
template <int groups>
__global__ void __launch_bounds__(mma_threads, 3)
    squared_read_kernel(DeltaCall<bf16> call, TokenHeads<bf16> o, const bf16* planes) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom start(shared);
  const MeetingRoom room(start);
  const RowTile q = start.tile<RowTile>();
  const SquaredPlace place = squared_place(call, true);
  const DeltaPlace& at = place.at;
  copy_rows(q, call.q, at.b, place.h, at.first, at.count);
  float sum[8][4] = {};
  for_each_other(
      at.c,
      [&](int64_t n, int stage) {
        const DeltaPlace other = delta_place(call, at, at.c - 1 - n);
        copy_rows(room.rows(stage), call.k, other.b, other.kv, other.first, other.count);
        copy_planes(room.split(stage), planes, other.unit, 0);
        room.copy_gates(stage, call, other.unit);
      },
      [&](int64_t, int stage, float between) {
        MmaLeft<1> own;
        load_left<false>(own, q);
        float score[8][4];
        squared_scores<groups>(score, own, room.rows(stage));
        scale_all(score, between);
        MmaLeft<2> scores;
        split_left(scores, score);
        multiply<false>(sum, scores, room.split(stage));
        return between * room.keep(stage);
      });
  ChunkGates& gates = room.own_gates();
  copy_rows(room.rows(0), call.k, at.b, at.kv, at.first, at.count);
  commit_copies();
  load_gates(gates, call, at);
  __syncthreads();
  fill_written(room.split(0), call, at, gates);
  await_copies<0>();
  __syncthreads();
  scale_sum(sum, gates.read);
  MmaLeft<1> own;
  load_left<false>(own, q);
  float score[8][4];
  squared_scores<groups>(score, own, room.rows(0));
  fade_sum<false>(score, gates, at, call.log != nullptr, false);
  MmaLeft<2> scores;
  split_left(scores, score);
  multiply<false>(sum, scores, room.split(0));
  store_rows(o, sum, at, place.h);
}

}  // namespace kata::cuda
