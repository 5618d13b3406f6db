// The delta rule against time on the tensor cores, as delta_backward.cuh and delta_gradient.cuh do it: what
// stands in delta_mma_forward.cuh holds here too.
#pragma once

#include "kernels/common/delta_mma_forward.cuh"

namespace kata::cuda {

// --- What the queries of a chunk pass back: to its U (pull, [B, T, Hkv, 64]), inside the chunk, and to the
// state before it: f(Q)^T g do, left in the chunk's place of the states' gradients.
constexpr int pull_mma_shared = 3 * RowTile::bytes + static_cast<int>(sizeof(ChunkGates));
static __global__ void __launch_bounds__(mma_threads, 3) pull_mma_kernel(DeltaCall<bf16> call, float* pull) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom room(shared);
  const RowTile q = room.tile<RowTile>(), k = room.tile<RowTile>(), d_o = room.tile<RowTile>();
  ChunkGates& gates = *room.room<ChunkGates>();
  const DeltaPlace at = delta_place(call, blockIdx.x);
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  load_gates(gates, call, at);
  float sum[8][4] = {}, state[8][4] = {};
  for (int64_t h = at.kv * call.group; h < (at.kv + 1) * call.group; ++h) {
    copy_rows(q, call.q, at.b, h, at.first, at.count);
    copy_rows(d_o, call.d_o, at.b, h, at.first, at.count);
    commit_copies();
    await_copies<0>();
    __syncthreads();
    MmaLeft<1> one;
    MmaLeft<2> two;
    load_left<true>(one, q);
    scale_columns(two, one, gates.read);
    multiply<false>(state, two, d_o);
    float score[8][4] = {};
    load_left<false>(one, k);
    multiply<true>(score, one, q);
    fade_sum<true>(score, gates, at, call.log != nullptr, false);
    split_left(two, score);
    multiply<false>(sum, two, d_o);
    __syncthreads();
  }
  for_each_pair(state, [&](float a, float b, int row, int column) {
    *reinterpret_cast<float2*>(call.gradients + at.unit * tile * tile + row * tile + column) =
        make_float2(a, b);
  });
  for_each_pair(sum, [&](float a, float b, int row, int column) {
    if (row < at.count)
      *reinterpret_cast<float2*>(pull + call.gate(at.b, at.first + row, at.kv) * tile + column) =
          make_float2(a, b);
  });
}

// --- The chunks of a round against time, as unwind_kernel; 32 columns of a pair a block, dS in registers.
static __global__ void __launch_bounds__(mma_threads, 4)
    unwind_mma_kernel(DeltaCall<bf16> call, TokenHeads<bf16> dv, float* wide_dv, float* parts,
                      const float* from, float* to) {
  extern __shared__ __align__(16) float shared[];
  const WalkRoom room(shared);
  const int e = static_cast<int>(blockIdx.y) * walk_columns;
  const int64_t index = blockIdx.x, size = tile * tile;
  const DeltaPlace pair = delta_place(call, index, 0);
  const auto fetch = [&](int64_t slot) {
    if (slot >= 0) {
      const DeltaPlace at = delta_place(call, pair, call.begin + slot);
      copy_rows(room.keys(slot), call.k, at.b, at.kv, at.first, at.count);
      copy_gates(room.gates(slot), call, at.unit);
    }
    commit_copies();
  };
  const auto fetch_inverse = [&](int64_t slot) {
    if (slot >= 0) copy_inverse(room.inverse, call, index * call.slots + slot);
    commit_copies();
  };
  fetch(call.slots - 1);
  fetch_inverse(call.slots - 1);
  float state[4][4] = {};
  if (from != nullptr) load_walk(state, from + index * size + e);

  for (int64_t slot = call.slots - 1; slot >= 0; --slot) {
    const DeltaPlace at = delta_place(call, pair, call.begin + slot);
    const RowTile k = room.keys(slot);
    const float* gates = room.gates(slot);
    const WalkTile even = room.turn(slot), odd = room.turn(slot + 1);
    float* gradient = call.gradients + at.unit * size + e;
    float passed[4][4];  // from the queries to the state before the chunk
    load_walk(passed, gradient);
    store_walk(gradient, state);
    store_split(even, state);
    await_copies<1>();
    __syncthreads();
    fetch(slot - 1);
    float x[4][4] = {}, pull[4][4];
    load_values(pull, call, wide_dv, at, e);
    {
      MmaLeft<1> rows;
      load_left<false>(rows, k);
      multiply<false>(x, rows, even);
    }
    const float keep = gates[3 * tile];
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        state[n][i] = faded(keep, state[n][i]) + passed[n][i];
        x[n][i] = pull[n][i] + faded(gates[tile + mma_row(i)], x[n][i]);
      }
    store_split(odd, x);
    await_copies<1>();
    __syncthreads();
    float error[4][4], change[4][4] = {};
    load_values(error, call, call.errors, at, e);
    uint32_t v[8];
    load_v(v, call, at, e);
    {
      MmaLeft<2> solver;
      load_left<false>(solver, room.inverse);
      multiply<false>(change, solver, odd);
    }
    write_dv(change, error, v, gates, call, at, e, dv, wide_dv, parts);
    store_split(even, change);
    __syncthreads();
    fetch_inverse(slot - 1);
    MmaLeft<1> columns;
    load_left<true>(columns, k);
    multiply<false>(state, columns, even);
  }
  if (to != nullptr) store_walk(to + index * size + e, state);
}

// --- dq of a chunk of one head, as delta_query_kernel.
constexpr int query_mma_shared = 3 * RowTile::bytes + SplitTile::bytes + static_cast<int>(sizeof(ChunkGates));
static __global__ void __launch_bounds__(mma_threads, 4)
    query_mma_kernel(DeltaCall<bf16> call, TokenHeads<bf16> dq, float* share) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom room(shared);
  const RowTile q = room.tile<RowTile>(), k = room.tile<RowTile>(), d_o = room.tile<RowTile>();
  const SplitTile right = room.tile<SplitTile>();
  ChunkGates& gates = *room.room<ChunkGates>();
  const DeltaPlace at = delta_place(call, blockIdx.x / call.group);
  const int64_t h = at.kv * call.group + blockIdx.x % call.group;
  const bool empty = call.empty_before(at.c);
  copy_rows(d_o, call.d_o, at.b, h, at.first, at.count);
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  copy_rows(q, call.q, at.b, h, at.first, at.count);
  commit_copies();
  if (!empty) fill_state(right, call.states + at.unit * call.state_size());
  load_gates(gates, call, at);
  await_copies<0>();
  __syncthreads();
  MmaLeft<1> rows;
  load_left<false>(rows, d_o);
  float sum[8][4] = {};
  if (!empty) {
    multiply<true>(sum, rows, right);
    scale_sum(sum, gates.read);
    __syncthreads();
  }
  fill_written(right, call, at, gates);
  __syncthreads();
  float score[8][4] = {};
  multiply<true>(score, rows, right);
  fade_sum<false>(score, gates, at, call.log != nullptr, false);
  MmaLeft<2> scores;
  split_left(scores, score);
  multiply<false>(sum, scores, k);
  finish_rows(dq, sum, q, call, at, h, share, call.size.heads);
}

// sum += (scores of own rows with `other`, faded) times the rows of x
template <bool keys, int L, int R>
__device__ __forceinline__ void add_scores(float (&sum)[8][4], const MmaLeft<L>& own,
                                           const MmaTile<64, R>& other, const RowTile& x,
                                           const ChunkGates& gates, const DeltaPlace& at, bool decays,
                                           bool strict) {
  float score[8][4] = {};
  multiply<true>(score, own, other);
  fade_sum<keys>(score, gates, at, decays, strict);
  MmaLeft<2> scores;
  split_left(scores, score);
  multiply<false>(sum, scores, x);
}

// --- dk of a chunk, as delta_key_kernel.
constexpr int key_mma_shared =
    3 * RowTile::bytes + 3 * SplitTile::bytes + static_cast<int>(sizeof(ChunkGates));
static __global__ void __launch_bounds__(mma_threads, 3)
    key_mma_kernel(DeltaCall<bf16> call, TokenHeads<bf16> dk, float* share) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom room(shared);
  const RowTile q = room.tile<RowTile>(), k = room.tile<RowTile>(), d_o = room.tile<RowTile>();
  const SplitTile written = room.tile<SplitTile>(), erased = room.tile<SplitTile>();
  const SplitTile state = room.tile<SplitTile>();
  ChunkGates& gates = *room.room<ChunkGates>();
  const DeltaPlace at = delta_place(call, blockIdx.x);
  const bool decays = call.log != nullptr;
  const int64_t first_head = at.kv * call.group, place = at.unit * call.state_size();
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  copy_rows(q, call.q, at.b, first_head, at.first, at.count);
  copy_rows(d_o, call.d_o, at.b, first_head, at.first, at.count);
  commit_copies();
  if (!call.empty_before(at.c)) fill_state(state, call.states + place);
  fill_erased(erased, call, at);
  load_gates(gates, call, at);
  __syncthreads();
  fill_written(written, call, at, gates);
  await_copies<0>();
  __syncthreads();
  float sum[8][4] = {};
  MmaLeft<2> own;
  load_left<false>(own, erased);
  if (!call.empty_before(at.c)) {
    multiply<true>(sum, own, state);
    scale_sum(sum, gates.read);
    __syncthreads();
  }
  if (!call.empty_after(at.c)) fill_state(state, call.gradients + place);
  add_scores<false>(sum, own, written, k, gates, at, decays, true);
  load_left<false>(own, written);
  __syncthreads();
  if (!call.empty_after(at.c)) {
    float through[8][4] = {};
    multiply<true>(through, own, state);
    scale_sum(through, gates.write);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[n][i] += through[n][i];
  }
  add_scores<true>(sum, own, erased, k, gates, at, decays, true);
  for (int64_t h = first_head; h < first_head + call.group; ++h) {
    if (h > first_head) {
      __syncthreads();
      copy_rows(q, call.q, at.b, h, at.first, at.count);
      copy_rows(d_o, call.d_o, at.b, h, at.first, at.count);
      commit_copies();
      await_copies<0>();
      __syncthreads();
    }
    add_scores<true>(sum, own, d_o, q, gates, at, decays, false);
  }
  finish_rows(dk, sum, k, call, at, at.kv, share, call.size.kv_heads);
}

}  // namespace kata::cuda
