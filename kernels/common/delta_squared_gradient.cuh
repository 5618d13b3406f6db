// The gradients of the delta rule of squared scores.
#pragma once

#include "kernels/common/delta_squared_walk.cuh"

namespace kata::cuda {

// --- U' = write beta e of all chunks, as planes.
static __global__ void __launch_bounds__(mma_threads) written_planes_kernel(DeltaCall<bf16> call, bf16* to) {
  const DeltaPlace at = delta_place(call, blockIdx.x);
  const float* gates = call.gates + at.unit * gate_floats;
  for (int e = 0; e < tile; e += walk_columns) {
    float x[4][4];
    load_values(x, call, call.errors, at, e);
    for_each_sum(x, [&](float& value, int row, int) {
      value = faded(gates[tile + row], gates[2 * tile + row] * value);
    });
    store_planes(to, at.unit, e, x);
  }
}

// --- What the queries of a chunk and of all later ones pass back to its U.
constexpr int squared_pull_shared = MeetingRoom::bytes + RowTile::bytes;
template <int groups>
__global__ void __launch_bounds__(mma_threads, 3) squared_pull_kernel(DeltaCall<bf16> call, float* pull) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom start(shared);
  const MeetingRoom room(start);
  const RowTile k = start.tile<RowTile>();
  // A block does all query heads of its key head.
  const DeltaPlace at = delta_place(call, blockIdx.x % call.pairs, blockIdx.x / call.pairs);
  const int64_t head = at.kv * call.group;
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  float sum[8][4] = {};
  for (int64_t h = head; h < head + call.group; ++h)
    for_each_other(
        call.chunks - 1 - at.c,
        [&](int64_t n, int stage) {
          const DeltaPlace other = delta_place(call, at, at.c + 1 + n);
          copy_rows(room.rows(stage), call.q, other.b, h, other.first, other.count);
          copy_rows(room.more_rows(stage), call.d_o, other.b, h, other.first, other.count);
          room.copy_gates(stage, call, other.unit);
        },
        [&](int64_t, int stage, float between) {
          MmaLeft<1> own;
          load_left<false>(own, k);
          float score[8][4];
          squared_scores<groups>(score, own, room.rows(stage));
          const float* read = room.read(stage);
          for_each_sum(score, [&](float& value, int, int column) { value *= between * read[column]; });
          MmaLeft<2> scores;
          split_left(scores, score);
          multiply<false>(sum, scores, room.more_rows(stage));
          return between * room.keep(stage);
        });
  ChunkGates& gates = room.own_gates();
  load_gates(gates, call, at);
  __syncthreads();
  scale_sum(sum, gates.write);
  for (int64_t h = head; h < head + call.group; ++h) {
    copy_rows(room.rows(0), call.q, at.b, h, at.first, at.count);
    copy_rows(room.more_rows(0), call.d_o, at.b, h, at.first, at.count);
    commit_copies();
    await_copies<0>();
    __syncthreads();
    MmaLeft<1> own;
    load_left<false>(own, k);
    float score[8][4];
    squared_scores<groups>(score, own, room.rows(0));
    fade_sum<true>(score, gates, at, call.log != nullptr, false);
    MmaLeft<2> scores;
    split_left(scores, score);
    multiply<false>(sum, scores, room.more_rows(0));
    __syncthreads();
  }
  for_each_pair(sum, [&](float a, float b, int row, int column) {
    if (row < at.count)
      *reinterpret_cast<float2*>(pull + call.gate(at.b, at.first + row, at.kv) * tile + column) =
          make_float2(a, b);
  });
}

// sum += what <values, other_values> as gradients of scores pass back to own rows from those of other.
template <int groups, int V, int R>
__device__ __forceinline__ void add_pair(float (&sum)[8][4], const RowTile& own, const RowTile& other,
                                         const MmaTile<64, V>& values, const MmaTile<64, R>& other_values,
                                         float between, const float* column_factor) {
  float d[8][4] = {};
  {
    MmaLeft<V> left;
    load_left<false>(left, values);
    multiply<true>(d, left, other_values);
  }
  if (column_factor == nullptr)
    scale_all(d, between);
  else
    for_each_sum(d, [&](float& x, int, int column) { x *= between * column_factor[column]; });
  MmaLeft<1> rows;
  load_left<false>(rows, own);
  add_squared<groups>(sum, d, rows, other);
}
// Likewise inside a chunk.
template <int groups, bool keys, int V, int R>
__device__ __forceinline__ void add_own_chunk(float (&sum)[8][4], const RowTile& own, const RowTile& other,
                                              const MmaTile<64, V>& values,
                                              const MmaTile<64, R>& other_values, const ChunkGates& gates,
                                              const DeltaPlace& at, bool decays, bool strict) {
  float d[8][4] = {};
  {
    MmaLeft<V> left;
    load_left<false>(left, values);
    multiply<true>(d, left, other_values);
  }
  fade_sum<keys>(d, gates, at, decays, strict);
  MmaLeft<1> rows;
  load_left<false>(rows, own);
  add_squared<groups>(sum, d, rows, other);
}

// --- dq of a chunk of one head.
constexpr int squared_query_shared = MeetingRoom::bytes + 2 * RowTile::bytes;
template <int groups>
__global__ void __launch_bounds__(mma_threads, 3)
    squared_query_kernel(DeltaCall<bf16> call, TokenHeads<bf16> dq, float* share, const bf16* planes) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom start(shared);
  const MeetingRoom room(start);
  const RowTile q = start.tile<RowTile>(), d_o = start.tile<RowTile>();
  const SquaredPlace place = squared_place(call, true);
  const DeltaPlace& at = place.at;
  copy_rows(q, call.q, at.b, place.h, at.first, at.count);
  copy_rows(d_o, call.d_o, at.b, place.h, at.first, at.count);
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
        add_pair<groups>(sum, q, room.rows(stage), d_o, room.split(stage), between, nullptr);
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
  add_own_chunk<groups, false>(sum, q, room.rows(0), d_o, room.split(0), gates, at, call.log != nullptr,
                               false);
  finish_rows(dq, sum, q, call, at, place.h, share, call.size.heads, 0.5f);
}

// --- dk of a chunk, as delta_key_kernel. written, erased: planes of U' and Z.
constexpr int squared_key_shared = MeetingRoom::bytes + RowTile::bytes + SplitTile::bytes;
template <int groups>
__global__ void __launch_bounds__(mma_threads, 3)
    squared_key_kernel(DeltaCall<bf16> call, TokenHeads<bf16> dk, float* share, const bf16* written,
                       const bf16* erased) {
  extern __shared__ __align__(16) float shared[];
  SharedRoom start(shared);
  const MeetingRoom room(start);
  const RowTile k = start.tile<RowTile>();
  const SplitTile own = start.tile<SplitTile>();
  const DeltaPlace at = delta_place(call, blockIdx.x % call.pairs, blockIdx.x / call.pairs);
  const int64_t head = at.kv * call.group;
  const int64_t later = call.chunks - 1 - at.c;
  const bool decays = call.log != nullptr;
  copy_rows(k, call.k, at.b, at.kv, at.first, at.count);
  copy_planes(own, written, at.unit, 0);
  float sum[8][4] = {};
  for (int64_t h = head; h < head + call.group; ++h)
    for_each_other(
        later,
        [&](int64_t n, int stage) {
          const DeltaPlace other = delta_place(call, at, at.c + 1 + n);
          copy_rows(room.rows(stage), call.q, other.b, h, other.first, other.count);
          copy_rows(room.more_rows(stage), call.d_o, other.b, h, other.first, other.count);
          room.copy_gates(stage, call, other.unit);
        },
        [&](int64_t, int stage, float between) {
          add_pair<groups>(sum, k, room.rows(stage), own, room.more_rows(stage), between, room.read(stage));
          return between * room.keep(stage);
        });
  const auto with_keys = [&](int64_t count, int64_t direction, const bf16* planes) {
    for_each_other(
        count,
        [&](int64_t n, int stage) {
          const DeltaPlace other = delta_place(call, at, at.c + direction * (n + 1));
          copy_rows(room.rows(stage), call.k, other.b, other.kv, other.first, other.count);
          copy_planes(room.split(stage), planes, other.unit, 0);
          room.copy_gates(stage, call, other.unit);
        },
        [&](int64_t, int stage, float between) {
          add_pair<groups>(sum, k, room.rows(stage), own, room.split(stage), between, nullptr);
          return between * room.keep(stage);
        });
  };
  with_keys(later, 1, erased);
  copy_planes(own, erased, at.unit, 0);
  with_keys(at.c, -1, written);

  ChunkGates& gates = room.own_gates();
  load_gates(gates, call, at);
  fill_erased(room.split(0), call, at);
  __syncthreads();
  fill_written(own, call, at, gates);
  __syncthreads();
  add_own_chunk<groups, true>(sum, k, k, own, room.split(0), gates, at, decays, true);
  add_own_chunk<groups, false>(sum, k, k, room.split(0), own, gates, at, decays, true);
  for (int64_t h = head; h < head + call.group; ++h) {
    __syncthreads();
    copy_rows(room.rows(0), call.q, at.b, h, at.first, at.count);
    copy_rows(room.more_rows(0), call.d_o, at.b, h, at.first, at.count);
    commit_copies();
    await_copies<0>();
    __syncthreads();
    add_own_chunk<groups, true>(sum, k, room.rows(0), own, room.more_rows(0), gates, at, decays, false);
  }
  finish_rows(dk, sum, k, call, at, at.kv, share, call.size.kv_heads, 0.5f);
}

// --- dlog a of a pair, as delta_decay_kernel does it for a chunk: the sum of dc over the tokens from t to
// the end of the document, in double. A thread has a run of tokens; a block has a pair.
constexpr int decay_threads = 256;
static __global__ void __launch_bounds__(decay_threads)
    squared_decay_kernel(DeltaCall<bf16> call, float* dlog, const float* query_share, const float* key_share,
                         const float* answers, int slices) {
  __shared__ double sums[decay_threads];
  __shared__ int open[decay_threads];  // no document starts in the run
  const DeltaPlace at = delta_place(call, blockIdx.x, 0);
  const int64_t tokens = call.size.tokens, rows = call.size.batch * tokens * call.size.kv_heads;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t run = (tokens + decay_threads - 1) / decay_threads;
  const int64_t first = min(run * thread, tokens), end = min(first + run, tokens);
  const auto begins = [&](int64_t t) {
    return t == 0 || (call.starts != nullptr && call.starts[at.b * tokens + t] == t);
  };
  const auto change = [&](int64_t t) {
    const int64_t token = at.b * tokens + t, gate = call.gate(at.b, t, at.kv);
    double dc = 0, answer = 0;
    for (int i = 0; i < call.group; ++i)
      dc += static_cast<double>(query_share[token * call.size.heads + at.kv * call.group + i]);
    for (int s = 0; s < slices; ++s) answer += static_cast<double>(answers[s * rows + gate]);
    return dc - static_cast<double>(key_share[gate]) - 2 * answer;
  };
  double sum = 0;
  bool whole = true;
  for (int64_t t = first; t < end && whole; ++t) {  // up to the first start: what earlier runs may take over
    if (begins(t))
      whole = false;
    else
      sum += change(t);
  }
  sums[thread] = sum;
  open[thread] = whole;
  __syncthreads();
  sum = 0;
  for (int i = thread + 1; i < decay_threads; ++i) {
    sum += sums[i];
    if (!open[i]) break;
  }
  for (int64_t t = end - 1; t >= first; --t) {
    sum += change(t);
    dlog[call.gate(at.b, t, at.kv)] = begins(t) ? 0.f : static_cast<float>(sum);
    if (begins(t)) sum = 0;
  }
}

}  // namespace kata::cuda
