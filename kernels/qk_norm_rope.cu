// Norm and rotation of queries and keys: a group of lanes keeps a head in registers between its sum and its
// result, and takes several heads of a token, so that the table's row is fetched once for them. Queries and
// keys have blocks of their own, because their weights and the sums of a weight's gradient stay in registers.
//
// Floor: memory. Forward reads x and writes y once, backward reads dy and x and writes dx: 2 bytes an element
// each in bf16. A token's row of the table comes from the cache.
#include "kernels/common/elements.cuh"
#include "kernels/common/reduce.cuh"
#include "ops/qk_norm_rope.h"

namespace kata::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;
constexpr int per_processor = 3;  // blocks: 24 warps with 64 bytes a lane under way

// `lanes` lanes share a head: each has C packs of N columns, the packs lanes * N columns apart. Packed: a
// pack is one access and lies in one group of the rotation; otherwise it is a pair, read element by element.
template <int N_, int lanes_, int C_, bool packed_>
struct Spread {
  static constexpr int N = N_, lanes = lanes_, C = C_, groups = threads / lanes;
  static constexpr bool packed = packed_;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % lanes; }
  static __device__ __forceinline__ int group() { return static_cast<int>(threadIdx.x) / lanes; }
  static __device__ __forceinline__ int column(int c) { return (c * lanes + lane()) * N; }
};

// f.template operator()<Spread>() for heads of this width.
template <class T, class F>
void with_spread(bool packed, int64_t width, F&& f) {
  constexpr int full = full_pack<T>;
  if (!packed) return f.template operator()<Spread<2, 32, 4, false>>();
  if (width <= 4 * full) return f.template operator()<Spread<full, 4, 1, true>>();
  if (width <= 8 * full) return f.template operator()<Spread<full, 8, 1, true>>();
  if (width <= 16 * full) return f.template operator()<Spread<full, 16, 1, true>>();
  if (width <= 32 * full) return f.template operator()<Spread<full, 32, 1, true>>();
  if constexpr (32 * full < qk_norm_rope_widest) return f.template operator()<Spread<full, 32, 2, true>>();
}

// Heads of a token that a group of lanes takes at a time.
template <class S>
constexpr int forward_heads = 4 / S::C;
template <class S>
constexpr int backward_heads = S::C == 1 ? 2 : 1;

template <class S, class T>
using Lane = Pack<T, S::N>[S::C];  // a lane's part of a head, as it lies in memory

template <class S, class T>
__device__ __forceinline__ void fetch(Lane<S, T>& to, const T* head, int width) {
#pragma unroll
  for (int c = 0; c < S::C; ++c)
    if (S::column(c) < width) {
      const T* p = head + S::column(c);
      if constexpr (S::packed) {
        to[c] = *reinterpret_cast<const Pack<T, S::N>*>(p);
      } else {
#pragma unroll
        for (int i = 0; i < S::N; ++i) to[c].at[i] = p[i];
      }
    }
}

template <class S, class T>
__device__ __forceinline__ void put(T* head, const float (&from)[S::C][S::N], int width) {
#pragma unroll
  for (int c = 0; c < S::C; ++c)
    if (S::column(c) < width) {
      T* p = head + S::column(c);
      if constexpr (S::packed) {
        store<S::N>(p, from[c]);
      } else {
#pragma unroll
        for (int i = 0; i < S::N; ++i) p[i] = from_float<T>(from[c][i]);
      }
    }
}

template <class S, class T>
__device__ __forceinline__ void widen(float (&to)[S::C][S::N], const Lane<S, T>& from) {
#pragma unroll
  for (int c = 0; c < S::C; ++c)
#pragma unroll
    for (int i = 0; i < S::N; ++i) to[c][i] = to_float(from[c].at[i]);
}

// N floats from p on, four at a time: p is aligned to them.
template <int N>
__device__ __forceinline__ void load_fours(float (&to)[N], const float* p) {
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(p + i);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

template <class S>
__device__ __forceinline__ void load_weight(float (&to)[S::C][S::N], const float* weight, int width) {
#pragma unroll
  for (int c = 0; c < S::C; ++c)
    if (S::column(c) < width) {
      if constexpr (S::packed) {
        load_fours(to[c], weight + S::column(c));
      } else {
#pragma unroll
        for (int i = 0; i < S::N; ++i) to[c][i] = weight[S::column(c) + i];
      }
    }
}

// (cos, sin) of the lane's pairs; a pair that does not turn has the angle 0.
template <class S>
__device__ __forceinline__ void load_turn(float (&to)[S::C][S::N], const float* row, const RopeSpec& spec) {
  const int width = static_cast<int>(spec.width), rotated = static_cast<int>(spec.rotated);
#pragma unroll
  for (int c = 0; c < S::C; ++c) {
    if (S::column(c) >= width) continue;
    const int inside = spec.groups == 1 ? S::column(c) : S::column(c) % static_cast<int>(spec.group_width());
    if (S::packed && rotated % 4 == 0 && inside + S::N <= rotated) {
      if constexpr (S::packed) load_fours(to[c], row + inside);
      continue;
    }
#pragma unroll
    for (int i = 0; i < S::N; i += 2) {
      const bool turns = inside + i < rotated;
      to[c][i] = turns ? row[inside + i] : 1;
      to[c][i + 1] = turns ? row[inside + i + 1] : 0;
    }
  }
}

// direction: +1 forward, -1 backward.
template <class S>
__device__ __forceinline__ void turn_pairs(float (&v)[S::C][S::N], const float (&turn)[S::C][S::N],
                                           float direction) {
#pragma unroll
  for (int c = 0; c < S::C; ++c)
#pragma unroll
    for (int i = 0; i < S::N; i += 2) {
      const float cosine = turn[c][i], sine = direction * turn[c][i + 1], even = v[c][i], odd = v[c][i + 1];
      v[c][i] = even * cosine - odd * sine;
      v[c][i + 1] = even * sine + odd * cosine;
    }
}

// The heads of one kind, and this block among those that do them.
struct Part {
  const float* weight;
  unsigned heads, first;  // of a token: how many, and the first of them
  unsigned block;
};
__device__ __forceinline__ Part part_of_block(const QkNormRopeInput<float>& in, const QkNormRopeSize& size,
                                              unsigned q_blocks) {
  const auto queries = static_cast<unsigned>(size.q_heads), keys = static_cast<unsigned>(size.k_heads);
  if (blockIdx.x < q_blocks) return {in.q_weight, queries, 0, blockIdx.x};
  return {in.k_weight, keys, queries, blockIdx.x - q_blocks};
}

// Where a token begins, and the row of the table that turns it.
struct TokenPlace {
  int64_t x, y;
  const float* turn;
};
__device__ __forceinline__ TokenPlace token_place(unsigned token, const QkNormRopeInput<float>& in,
                                                  const QkNormRopeSize& size) {
  const unsigned b = token / static_cast<unsigned>(size.time), t = token % static_cast<unsigned>(size.time);
  const int64_t start = in.starts.given() ? in.starts.data[int64_t{b} * in.starts.time + t] : 0;
  return {b * size.x_batch + t * size.x_token, b * size.y_batch + t * size.y_token,
          in.table + (t - start) * in.spec.rotated};
}

// A unit is K heads of a token, as many apart as the token has units: neighbouring groups of lanes have
// neighbouring heads. A block does one unit a group.
template <class T, class S>
__global__ void __launch_bounds__(threads, per_processor)
    forward_kernel(T* y, float* rstd, const T* x, float eps, unsigned q_blocks, QkNormRopeInput<float> in,
                   QkNormRopeSize size) {
  constexpr int K = forward_heads<S>;
  const Part part = part_of_block(in, size, q_blocks);
  const int width = static_cast<int>(in.spec.width);
  const float inverse = 1 / static_cast<float>(width);
  const unsigned tokens = static_cast<unsigned>(size.tokens()), units = (part.heads + K - 1) / K;
  const unsigned unit = part.block * S::groups + static_cast<unsigned>(S::group());
  const unsigned token = unit / units, first = unit % units;
  const bool inside = token < tokens;
  const TokenPlace at = token_place(inside ? token : 0, in, size);
  const auto there = [&](int k) { return inside && first + k * units < part.heads; };
  const int step = static_cast<int>(units) * width;  // from one head of a unit to the next
  const int offset = static_cast<int>(part.first + first) * width;
  x += at.x + offset, y += at.y + offset;
  rstd += token * size.heads() + part.first + first;

  Lane<S, T> heads[K] = {};
#pragma unroll
  for (int k = 0; k < K; ++k)
    if (there(k)) fetch<S, T>(heads[k], x + k * step, width);
  float turn[S::C][S::N] = {}, weight[S::C][S::N] = {};
  load_turn<S>(turn, at.turn, in.spec);
  load_weight<S>(weight, part.weight, width);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float v[S::C][S::N], squares = 0;
    widen<S, T>(v, heads[k]);
#pragma unroll
    for (int c = 0; c < S::C; ++c)
#pragma unroll
      for (int i = 0; i < S::N; ++i) squares += v[c][i] * v[c][i];
    const float scale = rsqrtf(lane_sum<S::lanes>(squares) * inverse + eps);
    if (!there(k)) continue;
    if (S::lane() == 0) rstd[k * units] = scale;
#pragma unroll
    for (int c = 0; c < S::C; ++c)
#pragma unroll
      for (int i = 0; i < S::N; ++i) v[c][i] *= scale * weight[c][i];
    turn_pairs<S>(v, turn, 1);
    put<S, T>(y + k * step, v, width);
  }
}

// The share of a block in backward: neighbouring tokens, of which every group of lanes takes each groups-th
// unit. Queries and keys together have at most about 1584 blocks, of 64 heads or more: 12 for each of 132
// multiprocessors, which hold 3 or 4 at a time.
struct Share {
  int64_t tokens, blocks;
};
Share share_of(int64_t heads, const QkNormRopeSize& size) {
  if (heads == 0 || size.tokens() == 0) return {1, 0};
  const int64_t most = std::max<int64_t>(1, 1584 * heads / size.heads());
  const int64_t tokens = std::max(ceil_div(64, heads), ceil_div(size.tokens(), most));
  return {tokens, ceil_div(size.tokens(), tokens)};
}

template <class T>
struct Gradients {
  T* dx;
  float* partial;  // [blocks, width]
  const T *dy, *x;
  const float* rstd;
  unsigned q_blocks, q_tokens, k_tokens;  // blocks of queries; tokens of a block of either kind
};

template <class T, class S>
__global__ void __launch_bounds__(threads, per_processor)
    backward_kernel(Gradients<T> call, QkNormRopeInput<float> in, QkNormRopeSize size) {
  extern __shared__ float shared[];  // [warps][width]
  constexpr int K = backward_heads<S>;
  const Part part = part_of_block(in, size, call.q_blocks);
  const int width = static_cast<int>(in.spec.width);
  const float inverse = 1 / static_cast<float>(width);
  const unsigned tokens = static_cast<unsigned>(size.tokens()), units = (part.heads + K - 1) / K;
  const unsigned own = blockIdx.x < call.q_blocks ? call.q_tokens : call.k_tokens, begin = part.block * own;
  const unsigned count = units * (begin + own < tokens ? own : tokens - begin);
  const int step = static_cast<int>(units) * width;  // from one head of a unit to the next
  float sums[S::C][S::N] = {}, weight[S::C][S::N] = {};
  load_weight<S>(weight, part.weight, width);
  // All groups take the same number of turns: shuffles need every lane.
  for (unsigned base = 0; base < count; base += S::groups) {
    const unsigned unit = base + static_cast<unsigned>(S::group());
    const bool inside = unit < count;
    const unsigned token = inside ? begin + unit / units : begin, first = unit % units;
    const TokenPlace at = token_place(token, in, size);
    const auto there = [&](int k) { return inside && first + k * units < part.heads; };
    const int offset = static_cast<int>(part.first + first) * width;
    const T *dy = call.dy + at.y + offset, *x = call.x + at.x + offset;
    const float* rstd = call.rstd + token * size.heads() + part.first + first;
    T* dx = call.dx + at.x + offset;
    Lane<S, T> gradients[K] = {}, heads[K] = {};
    float scales[K] = {};
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (there(k)) {
        fetch<S, T>(gradients[k], dy + k * step, width);
        fetch<S, T>(heads[k], x + k * step, width);
        scales[k] = rstd[k * units];
      }
    float turn[S::C][S::N] = {};
    load_turn<S>(turn, at.turn, in.spec);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float d[S::C][S::N], v[S::C][S::N], mean = 0;
      const float scale = scales[k];
      widen<S, T>(d, gradients[k]);
      widen<S, T>(v, heads[k]);
      turn_pairs<S>(d, turn, -1);
#pragma unroll
      for (int c = 0; c < S::C; ++c)
#pragma unroll
        for (int i = 0; i < S::N; ++i) {
          sums[c][i] += d[c][i] * v[c][i] * scale;
          d[c][i] *= weight[c][i];
          mean += d[c][i] * v[c][i];
        }
      mean = lane_sum<S::lanes>(mean) * inverse * scale * scale;
      if (!there(k)) continue;
#pragma unroll
      for (int c = 0; c < S::C; ++c)
#pragma unroll
        for (int i = 0; i < S::N; ++i) d[c][i] = scale * (d[c][i] - v[c][i] * mean);
      put<S, T>(dx + k * step, d, width);
    }
  }
  float* row = shared + static_cast<int>(threadIdx.x) / 32 * width;
#pragma unroll
  for (int c = 0; c < S::C; ++c) warp_columns<S::lanes>(row, sums[c], S::column(c), width);
  block_columns<warps>(call.partial + int64_t{blockIdx.x} * width, shared, width);
}

// Every address of both kinds of heads allows 16-byte accesses, and no pack reaches over a group.
template <class T>
bool all_packed(std::initializer_list<const void*> pointers, const QkNormRopeInput<float>& in,
                const QkNormRopeSize& size) {
  return packs<T>(pointers,
                  {size.x_batch, size.x_token, size.y_batch, size.y_token, in.spec.group_width()}) &&
         packs<float>({in.q_weight, in.k_weight, in.table}, {});
}

// Kernels count heads in 32 bits.
void check_count(const QkNormRopeSize& size) {
  KATA_CHECK(size.tokens() * size.heads() < (int64_t{1} << 31), "qk_norm_rope: {} heads",
             size.tokens() * size.heads());
}

}  // namespace

template <class T>
void qk_norm_rope_forward(GpuStream stream, T* y, Wide<T>* rstd, const T* x, float eps,
                          const QkNormRopeInput<Wide<T>>& in, const QkNormRopeSize& size) {
  if (size.tokens() * size.heads() == 0) return;
  check_count(size);
  with_spread<T>(all_packed<T>({y, x}, in, size), in.spec.width, [&]<class S>() {
    const auto blocks = [&](int64_t heads) {
      return ceil_div(size.tokens() * ceil_div(heads, forward_heads<S>), S::groups);
    };
    const int64_t q_blocks = blocks(size.q_heads), all = q_blocks + blocks(size.k_heads);
    forward_kernel<T, S>
        <<<grid(all), threads, 0, stream>>>(y, rstd, x, eps, static_cast<unsigned>(q_blocks), in, size);
  });
  check_launch("qk_norm_rope_forward");
}

int64_t qk_norm_rope_partials(const QkNormRopeSize& size) {
  return std::max<int64_t>(1, share_of(size.q_heads, size).blocks + share_of(size.k_heads, size).blocks);
}

template <class T>
void qk_norm_rope_backward(GpuStream stream, T* dx, Wide<T>* dq_weight, Wide<T>* dk_weight, const T* dy,
                           const T* x, const Wide<T>* rstd, Wide<T>* partial,
                           const QkNormRopeInput<Wide<T>>& in, const QkNormRopeSize& size) {
  if (size.tokens() * size.heads() == 0) return;
  check_count(size);
  const int64_t width = in.spec.width;
  const Share q = share_of(size.q_heads, size), k = share_of(size.k_heads, size);
  const Gradients<T> call = {dx,
                             partial,
                             dy,
                             x,
                             rstd,
                             static_cast<unsigned>(q.blocks),
                             static_cast<unsigned>(q.tokens),
                             static_cast<unsigned>(k.tokens)};
  const size_t shared = warps * static_cast<size_t>(width) * sizeof(float);
  with_spread<T>(all_packed<T>({dx, dy, x}, in, size), width, [&]<class S>() {
    backward_kernel<T, S><<<grid(q.blocks + k.blocks), threads, shared, stream>>>(call, in, size);
  });
  check_launch("qk_norm_rope_backward");
  if (q.blocks > 0) add_partials(stream, dq_weight, partial, q.blocks, width);
  if (k.blocks > 0) add_partials(stream, dk_weight, partial + q.blocks * width, k.blocks, width);
}

#define KATA_INSTANTIATE(T)                                                                               \
  template void qk_norm_rope_forward<T>(GpuStream, T*, float*, const T*, float,                           \
                                        const QkNormRopeInput<float>&, const QkNormRopeSize&);            \
  template void qk_norm_rope_backward<T>(GpuStream, T*, float*, float*, const T*, const T*, const float*, \
                                         float*, const QkNormRopeInput<float>&, const QkNormRopeSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
