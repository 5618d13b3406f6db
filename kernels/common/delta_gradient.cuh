// The delta rule's gradients of queries, keys and the decay, of all chunks of a round at once.
#pragma once

#include "kernels/common/delta_backward.cuh"

namespace kata::cuda {

// A chunk's rows of q or k and the gradient du of their lifted form, as it is summed in shared memory.
template <class T>
struct GradientTile {
  const DeltaCall<T>& call;
  DeltaPlace at;
  ChunkGates* gates;
  float *own, *du;    // left factors [width][64]
  float* own_values;  // left factor [64 columns][64]
  float *f, *other, *w;
  unsigned* table;

  __device__ GradientTile(const DeltaCall<T>& c, float* shared) : call(c) {
    const int width = c.map.width;
    gates = reinterpret_cast<ChunkGates*>(shared);
    own = shared + sizeof(ChunkGates) / 4;
    du = own + width * left_stride;
    own_values = du + width * left_stride;
    f = own_values + tile * left_stride;
    other = f + tile * left_stride;
    w = other + tile * stride();
    table = reinterpret_cast<unsigned*>(w + tile * tile_stride);
  }
  __device__ int stride() const { return call.map.width | 1; }

  __device__ void start(const DeltaPlace& place, const TokenHeads<const T>& x, int64_t h) {
    at = place;
    load_gates(*gates, call, at);
    load_lifted(own, 1, left_stride, x, at.b, h, at.first, at.count, call.map);
    for (int i = static_cast<int>(threadIdx.x); i < call.map.width * left_stride; i += tile_threads)
      du[i] = 0;
    __syncthreads();
  }

  // x += own values times what load(e, n) puts in w, over all columns e .. e + n of the values. again: the
  // values may differ from the last call's.
  template <class Value, class Load>
  __device__ void times_values(float (&x)[4][4], bool again, Value&& value, Load&& load) {
    int offset[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) offset[j] = (thread_column() + 16 * j) * tile_stride;
    for (int e = 0; e < call.columns; e += tile) {
      const int n = min(tile, call.columns - e);
      if (again || call.columns > tile)
        fill_tile<tile>(own_values, 1, left_stride, at.count, n,
                        [&](int r, int j) { return value(r, e + j); });
      load(e, n);
      __syncthreads();
      multiply(x, own_values, w, 1, offset, n);
      __syncthreads();
    }
  }

  // What the products of the own features with a state pass back. value(row, column): the row's other factor;
  // factor: a number a row.
  template <class Value>
  __device__ void through_state(const float* state, const float* factor, Value&& value) {
    for (int p = 0; p < call.map.features; p += tile) {
      if (threadIdx.x < tile)
        table[threadIdx.x] = packed_entry(
            feature_entry(call.map, min(p + static_cast<int>(threadIdx.x), call.map.features - 1)));
      float df[4][4] = {};
      times_values(df, p == 0, value, [&](int e, int n) {
        load_state_tile<tile>(w, state, call.map.features, call.columns, p, e, n);
      });
      scale_rows(df, factor);
      store_left(f, df);
      __syncthreads();
      add_feature_gradients(du, f, own, table, min(tile, call.map.features - p), call.map);
      __syncthreads();
    }
  }

  // What the scores of own rows with rows of x, head h, pass back, where the score's gradient is the product
  // of value(own row, column) and other_value(other row, column). keys: the own rows are keys.
  template <bool keys, class Value, class Other>
  __device__ void through_scores(const TokenHeads<const T>& x, int64_t h, bool strict, Value&& value,
                                 Other&& other_value) {
    load_lifted(other, stride(), 1, x, at.b, h, at.first, at.count, call.map);
    float da[4][4] = {};
    times_values(da, true, value, [&](int e, int n) {
      fill_tile<tile>(w, tile_stride, 1, at.count, n, [&](int r, int j) { return other_value(r, e + j); });
    });
    fade_chunk<keys>(da, *gates, at, call.log != nullptr, strict);
    for (int dot = 0; dot < score_dots(call.map); ++dot) {
      float r[4][4];
      if (!call.map.first_order) tile_dot<keys>(r, own, other, stride(), call.map, dot);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) r[i][j] = call.map.first_order ? da[i][j] : 2 * r[i][j] * da[i][j];
      store_left(f, r);
      __syncthreads();
      add_dot_gradients<keys>(du, f, other, stride(), at.count, call.map, dot);
      __syncthreads();
    }
  }

  // share: of every row, what it adds to the decay's gradient as a query, or null; at row * heads + h
  __device__ void finish(const TokenHeads<T>& dx, const TokenHeads<const T>& x, int64_t h, float* share,
                         int64_t heads) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int r = static_cast<int>(threadIdx.x) / 32; r < at.count; r += tile_threads / 32) {
      float sum = 0;
      for (int c = lane; c < call.map.width; c += 32)
        sum += own[c * left_stride + r] * du[c * left_stride + r];
      sum = lane_sum<32>(sum);
      if (share != nullptr && lane == 0)
        share[(at.b * call.size.tokens + at.first + r) * heads + h] = call.map.first_order ? sum : sum / 2;
      lift_row_backward(head_row(dx, at.b, at.first + r, h), du + r, left_stride,
                        head_row(x, at.b, at.first + r, h), call.map, lane);
    }
  }

  // Numbers of the chunk's rows and columns.
  __device__ int64_t value_at(int r, int j) const {
    return call.gate(at.b, at.first + r, at.kv) * call.columns + j;
  }
  __device__ float written(int r, int j) const {
    return gates->beta[r] * call.errors[value_at(r, j)];
  }
  __device__ float erased(int r, int j) const {
    return -call.dv[value_at(r, j)];
  }
  __device__ float d_o(int64_t h, int r, int j) const {
    return to_float(head_row(call.d_o, at.b, at.first + r, h)[j]);
  }
};

template <class T>
int64_t delta_gradient_shared(const DeltaCall<T>& call) {
  const int64_t width = call.map.width;
  return (2 * width * left_stride + 2 * tile * left_stride + tile * (width | 1) + tile * tile_stride + tile) *
             4 +
         static_cast<int64_t>(sizeof(ChunkGates));
}

// dq of a chunk of one head: the scores with k get <do_t, U_s>, f(q_t) gets g S do_t.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    delta_query_kernel(DeltaCall<T> call, TokenHeads<T> dq, float* share) {
  extern __shared__ __align__(16) float shared[];
  GradientTile<T> tile_of(call, shared);
  const DeltaPlace at = delta_place(call, blockIdx.x / call.group);
  const int64_t h = at.kv * call.group + blockIdx.x % call.group;
  tile_of.start(at, call.q, h);
  const auto d_o = [&](int r, int j) { return tile_of.d_o(h, r, j); };
  if (!call.empty_before(at.c))
    tile_of.through_state(call.states + at.unit * call.state_size(), tile_of.gates->read, d_o);
  tile_of.template through_scores<false>(call.k, at.kv, false, d_o,
                                         [&](int r, int j) { return tile_of.written(r, j); });
  tile_of.finish(dq, call.q, h, share, call.size.heads);
}

// dk of a chunk. What k_t answers from the past is read as by a query with -dv_t for do_t; what it writes is
// read by the queries, by later keys, and by later chunks through the state.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    delta_key_kernel(DeltaCall<T> call, TokenHeads<T> dk, float* share) {
  extern __shared__ __align__(16) float shared[];
  GradientTile<T> tile_of(call, shared);
  const DeltaPlace at = delta_place(call, blockIdx.x);
  tile_of.start(at, call.k, at.kv);
  const auto erased = [&](int r, int j) { return tile_of.erased(r, j); };
  const auto written = [&](int r, int j) { return tile_of.written(r, j); };
  const int64_t state = at.unit * call.state_size();
  if (!call.empty_before(at.c)) tile_of.through_state(call.states + state, tile_of.gates->read, erased);
  tile_of.template through_scores<false>(call.k, at.kv, true, erased, written);
  if (!call.empty_after(at.c)) tile_of.through_state(call.gradients + state, tile_of.gates->write, written);
  tile_of.template through_scores<true>(call.k, at.kv, true, written, erased);
  for (int64_t h = at.kv * call.group; h < (at.kv + 1) * call.group; ++h)
    tile_of.template through_scores<true>(call.q, h, false, written,
                                          [&](int r, int j) { return tile_of.d_o(h, r, j); });
  tile_of.finish(dk, call.k, at.kv, share, call.size.kv_heads);
}

// dlog a of a chunk. dc_t is the queries' shares less the key's, which holds the row of k_t as a query with
// the wrong sign: that row is worth -<dv_t, v_t - e_t>, so twice that is added. Later chunks count as <S, dS>
// at this one's end, without the rounding errors of a sum over so many tokens. last: S after the round.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    delta_decay_kernel(DeltaCall<T> call, float* dlog, const float* query_share, const float* key_share,
                       const float* answers, int slices, const float* last) {
  __shared__ double sums[tile_threads];
  const DeltaPlace at = delta_place(call, blockIdx.x);
  const int64_t size = call.state_size(), slot = at.c - call.begin;
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  if (!call.empty_after(at.c)) {
    const float* after = call.gradients + at.unit * size;
    const float* state =
        slot + 1 < call.slots ? call.states + (at.unit + 1) * size : last + at.unit / call.slots * size;
    for (int64_t i = thread; i < size; i += tile_threads)
      sum += static_cast<double>(state[i]) * static_cast<double>(after[i]);
  }
  sums[thread] = sum;
  __syncthreads();
  for (int half = tile_threads / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    __syncthreads();
  }
  const double later = sums[0];
  __syncthreads();
  const int64_t rows = call.size.batch * call.size.tokens * call.size.kv_heads;
  if (thread < at.count) {
    const int64_t token = at.b * call.size.tokens + at.first + thread,
                  gate = token * call.size.kv_heads + at.kv;
    double dc = 0, answer = 0;
    for (int i = 0; i < call.group; ++i)
      dc += static_cast<double>(query_share[token * call.size.heads + at.kv * call.group + i]);
    for (int s = 0; s < slices; ++s) answer += static_cast<double>(answers[s * rows + gate]);
    sums[thread] = dc - static_cast<double>(key_share[gate]) - 2 * answer;
  }
  __syncthreads();
  if (thread != 0) return;
  sum = later;
  for (int r = at.count - 1; r >= 0; --r) {
    const int64_t t = at.first + r;
    const bool begins = t == 0 || (call.starts != nullptr && call.starts[at.b * call.size.tokens + t] == t);
    sum += sums[r];
    dlog[call.gate(at.b, t, at.kv)] = begins ? 0.f : static_cast<float>(sum);
    if (begins) sum = 0;
  }
}

}  // namespace kata::cuda
