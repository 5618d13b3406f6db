// The delta rule of squared scores in bf16, without states: psd on rows of 64 has features of 2,080, 1,056 or
// 544 numbers, so that up to some thousands of tokens the scores of all pairs of chunks cost less. Between
// chunks everything is a product of tiles of 64 on the tensor cores, with fp32 sums and split factors
// (common/delta_mma.cuh).
//
// Forward:
//   gates, inverse  of all chunks
//   walk     chunks in order, 32 columns of the values a block: the sum over the chunks before of squared
//            scores times U is taken from v, the inverse gives the errors
//   read     o, all chunks at once
// Backward:
//   U from the errors, gates, inverse
//   pull     what queries pass back to U, all chunks at once
//   walk     the same against time: dv takes the place of U
//   query, key, decay   the other gradients, all chunks at once
//
// Floor, in products of 64 x 64 x 64 (0.52 million operations) for a pair of chunks and a head, a split
// factor counted two or three times: forward 5 for the walk (the scores in both slices) and 4 for the read;
// backward 3 for the pull, 5 for the walk, 5 for dq and 17 for dk. A chunk of 2,048 tokens meets 16.5 on
// average: 32,768 tokens of 16 heads are 0.6 and 2.1 * 10^15 operations, 1.6 and 5.3 ms at 400 TFLOP/s. What
// is read per pair comes from the L2 cache.
#include "kernels/common/delta_launch.h"
#include "kernels/common/delta_squared.h"
#include "kernels/common/delta_squared_gradient.cuh"

namespace kata::cuda {

namespace {

constexpr int64_t slices = tile / walk_columns;

// Scratch of a call, in floats.
struct SquaredPlan {
  SquaredPlan(bool backward, const AttentionSize& size) {
    units = size.batch * size.kv_heads * ceil_div(size.tokens, tile);
    rows = size.batch * size.tokens * size.kv_heads;
    gates = take(units * gate_floats);
    inverse = take(units * tile * tile);
    written = take(units * tile * tile);
    if (!backward) return;
    erased = take(units * tile * tile);
    wide_dv = take(rows * tile);
    parts = take(2 * slices * rows);
    query_share = take(size.batch * size.tokens * size.heads);
    key_share = take(rows);
  }
  int64_t units, rows;
  int64_t gates, inverse, written, erased = 0, wide_dv = 0, parts = 0, query_share = 0, key_share = 0;
  int64_t used = 0;

 private:
  int64_t take(int64_t n) {
    const int64_t at = used;
    used += ceil_div(n, 4) * 4;
    return at;
  }
};

template <class Pass>
DeltaCall<bf16> call_of(const SquaredPlan& plan, const Pass& pass, const FeatureMap& map,
                        const AttentionSize& size) {
  DeltaCall<bf16> call = {};
  call.map = device_map(map);
  call.size = size;
  call.group = static_cast<int>(size.group());
  call.columns = tile;
  call.chunks = call.slots = ceil_div(size.tokens, tile);
  call.pairs = size.batch * size.kv_heads;
  call.q = pass.q;
  call.k = pass.k;
  call.v = pass.v;
  call.beta = pass.beta;
  call.errors = pass.errors;
  call.log = pass.decay.log;
  call.starts = pass.decay.starts.data;
  call.gates = pass.scratch + plan.gates;
  call.inverse = pass.scratch + plan.inverse;
  return call;
}
bf16* planes(float* room) {
  return reinterpret_cast<bf16*>(room);
}

// f.template operator()<groups>()
template <class F>
void with_groups(const FeatureMap& map, F&& f) {
  if (map.groups == 1) return f.template operator()<1>();
  if (map.groups == 2) return f.template operator()<2>();
  f.template operator()<4>();
}

}  // namespace

int64_t delta_squared_scratch(bool backward, const AttentionSize& size) {
  return SquaredPlan(backward, size).used;
}

void delta_squared_forward(GpuStream stream, const DeltaForward<bf16>& f, const FeatureMap& map,
                           const AttentionSize& size) {
  const SquaredPlan plan(false, size);
  const DeltaCall<bf16> call = call_of(plan, f, map, size);
  const dim3 units = blocks_of(plan.units, 1);
  bf16* written = planes(f.scratch + plan.written);
  with_groups(map, [&]<int groups>() {
    launch_threads(tile, chunk_gates_kernel, units, 0, stream, call);
    launch_mma(inverse_mma_kernel<groups, false>, units, inverse_mma_shared, stream, call);
    launch_mma(squared_walk_kernel<groups, false>, blocks_of(call.pairs, slices), SquaredWalkRoom::bytes,
               stream, call, SquaredWalk{f.errors, {}, nullptr, nullptr, written});
    launch_mma(squared_read_kernel<groups>, blocks_of(plan.units * call.group, 1), squared_read_shared,
               stream, call, f.o, written);
  });
}

void delta_squared_backward(GpuStream stream, const DeltaBackward<bf16>& b, const FeatureMap& map,
                            const AttentionSize& size) {
  const SquaredPlan plan(true, size);
  DeltaCall<bf16> call = call_of(plan, b, map, size);
  float *wide_dv = b.scratch + plan.wide_dv, *parts = b.scratch + plan.parts;
  const bool fades = b.dlog_decay != nullptr;
  float* query_share = fades ? b.scratch + plan.query_share : nullptr;
  float* key_share = fades ? b.scratch + plan.key_share : nullptr;
  call.d_o = b.d_o;
  call.dv = wide_dv;
  const dim3 units = blocks_of(plan.units, 1);
  bf16 *written = planes(b.scratch + plan.written), *erased = planes(b.scratch + plan.erased);
  with_groups(map, [&]<int groups>() {
    launch_threads(tile, chunk_gates_kernel, units, 0, stream, call);
    launch_mma(inverse_mma_kernel<groups, true>, units, inverse_mma_shared, stream, call);
    launch_mma(written_planes_kernel, units, 0, stream, call, written);
    launch_mma(squared_pull_kernel<groups>, units, squared_pull_shared, stream, call, wide_dv);
    launch_mma(squared_walk_kernel<groups, true>, blocks_of(call.pairs, slices), SquaredWalkRoom::bytes,
               stream, call, SquaredWalk{nullptr, b.dv, wide_dv, parts, erased});
    launch_mma(squared_query_kernel<groups>, blocks_of(plan.units * call.group, 1), squared_query_shared,
               stream, call, b.dq, query_share, written);
    launch_mma(squared_key_kernel<groups>, units, squared_key_shared, stream, call, b.dk, key_share, written,
               erased);
  });
  launch_threads(tile_threads, sum_parts_kernel, blocks_of(ceil_div(plan.rows, tile_threads), 1), 0, stream,
                 b.dbeta, parts, static_cast<int>(slices), plan.rows);
  if (fades)
    launch_threads(decay_threads, squared_decay_kernel, blocks_of(call.pairs, 1), 0, stream, call,
                   b.dlog_decay, query_share, key_share, parts + slices * plan.rows,
                   static_cast<int>(slices));
}

}  // namespace kata::cuda
