// The delta rule forward on the tensor cores: bf16 rows of 64 numbers that are their own features, 64 columns
// of values. The kernels stand for those of delta_chunk.cuh and delta_forward.cuh and leave the same numbers
// in the same places, but for the inverse (delta_mma_inverse.cuh). Keys and values are bf16 as they come;
// states, errors, scores and the inverse are split (delta_mma.cuh).
#pragma once

#include "kernels/common/delta_mma_inverse.cuh"

namespace kata::cuda {

// Shared memory of a block that walks: keys and gates of two chunks, the inverse of one, and two tiles that
// take turns: what is stored in one was last read before the barrier before the last.
struct WalkRoom {
  static constexpr int bytes =
      2 * RowTile::bytes + 2 * WalkTile::bytes + SplitTile::bytes + 2 * gate_floats * 4;
  __device__ explicit WalkRoom(void* start) {
    SharedRoom room(start);
    keys_ = room.room<bf16>(2 * RowTile::plane);
    turns_ = room.room<bf16>(2 * 2 * WalkTile::plane);
    inverse = room.tile<SplitTile>();
    gates_ = room.room<float>(2 * gate_floats);
  }
  __device__ RowTile keys(int64_t slot) const { return {keys_ + slot % 2 * RowTile::plane}; }
  __device__ WalkTile turn(int64_t slot) const { return {turns_ + slot % 2 * 2 * WalkTile::plane}; }
  __device__ float* gates(int64_t slot) const { return gates_ + slot % 2 * gate_floats; }
  SplitTile inverse;

 private:
  bf16 *keys_, *turns_;
  float* gates_;
};

// --- The chunks of a round in order, as errors_kernel: 32 columns of the values of a pair a block, the state
// in registers. Keys and gates are fetched a chunk ahead, the inverse as soon as the last one is used.
template <bool solve>
__global__ void __launch_bounds__(mma_threads, 4)
    errors_mma_kernel(DeltaCall<bf16> call, float* errors, const float* from, float* to) {
  extern __shared__ __align__(16) float shared[];
  const WalkRoom room(shared);
  const int e = static_cast<int>(blockIdx.y) * walk_columns;
  const int64_t index = blockIdx.x, size = tile * tile;
  const DeltaPlace pair = delta_place(call, index, 0);
  const auto fetch = [&](int64_t slot) {
    if (slot < call.slots) {
      const DeltaPlace at = delta_place(call, pair, call.begin + slot);
      copy_rows(room.keys(slot), call.k, at.b, at.kv, at.first, at.count);
      copy_gates(room.gates(slot), call, at.unit);
    }
    commit_copies();
  };
  const auto fetch_inverse = [&](int64_t slot) {
    if (solve && slot < call.slots) copy_inverse(room.inverse, call, index * call.slots + slot);
    commit_copies();
  };
  fetch(0);
  fetch_inverse(0);
  float state[4][4] = {};
  if (from != nullptr) load_walk(state, from + index * size + e);
  uint32_t v[8] = {};
  if (solve) load_v(v, call, pair, e);

  for (int64_t slot = 0; slot < call.slots; ++slot) {
    const DeltaPlace at = delta_place(call, pair, call.begin + slot);
    const RowTile k = room.keys(slot);
    const float* gates = room.gates(slot);
    const WalkTile even = room.turn(slot), odd = room.turn(slot + 1);
    store_walk(call.states + at.unit * size + e, state);
    float error[4][4] = {};
    if (solve)
      store_split(even, state);
    else
      load_values(error, call, call.errors, at, e);
    await_copies<1>();
    __syncthreads();
    fetch(slot + 1);
    if (solve) {
      float x[4][4] = {};
      MmaLeft<1> rows;
      load_left<false>(rows, k);
      multiply<false>(x, rows, even);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float(&pair)[4] = x[i / 2];
        const float read = gates[mma_row(i % 2 * 2)];
        pair[i % 2 * 2] = first_of(v[i]) - faded(read, pair[i % 2 * 2]);
        pair[i % 2 * 2 + 1] = second_of(v[i]) - faded(read, pair[i % 2 * 2 + 1]);
      }
      store_split(odd, x);
      await_copies<1>();
      __syncthreads();
      if (slot + 1 < call.slots) load_v(v, call, delta_place(call, pair, call.begin + slot + 1), e);
      MmaLeft<2> solver;
      load_left<true>(solver, room.inverse);
      multiply<false>(error, solver, odd);
      store_values(errors, call, error, at, e);
    }
    for_each_sum(error,
                 [&](float& value, int row, int) { value *= gates[tile + row] * gates[2 * tile + row]; });
    store_split(even, error);
    __syncthreads();
    fetch_inverse(slot + 1);
    const float keep = gates[3 * tile];
    for_each_sum(state, [&](float& value, int, int) { value = faded(keep, value); });
    MmaLeft<1> columns;
    load_left<true>(columns, k);
    multiply<false>(state, columns, even);
  }
  if (to != nullptr) store_walk(to + index * size + e, state);
}

// --- o of a chunk of one query head.
constexpr int read_mma_shared =
    2 * RowTile::bytes + 2 * SplitTile::bytes + static_cast<int>(sizeof(ChunkGates));
static __global__ void __launch_bounds__(mma_threads, 4)
    read_mma_kernel(DeltaCall<bf16> call, TokenHeads<bf16> o) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom room(shared);
  const RowTile q = room.tile<RowTile>(), k = room.tile<RowTile>();
  const SplitTile written = room.tile<SplitTile>(), state = room.tile<SplitTile>();
  ChunkGates& gates = *room.room<ChunkGates>();
  const DeltaPlace at = delta_place(call, blockIdx.x / call.group);
  const int64_t h = at.kv * call.group + blockIdx.x % call.group;
  const bool empty = call.empty_before(at.c);
  copy_rows(q, call.q, at.b, h, at.first, at.count);
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  commit_copies();
  if (!empty) fill_state(state, call.states + at.unit * call.state_size());
  load_gates(gates, call, at);
  __syncthreads();
  fill_written(written, call, at, gates);
  await_copies<0>();
  __syncthreads();
  MmaLeft<1> rows;
  load_left<false>(rows, q);
  float sum[8][4] = {};
  if (!empty) {
    multiply<false>(sum, rows, state);
    scale_sum(sum, gates.read);
  }
  float score[8][4] = {};
  multiply<true>(score, rows, k);
  fade_sum<false>(score, gates, at, call.log != nullptr, false);
  MmaLeft<2> scores;
  split_left(scores, score);
  multiply<false>(sum, scores, written);
  store_rows(o, sum, at, h);
}

}  // namespace kata::cuda
