// Backward pass, in the notation of mma_attention.h: a kernel per row and two of tiles, each of which owns
// what it writes. With f = fade scale^2 / D (psd) and r a group's unscaled dot product:
//
//   dv += P do        P = (sum of r^2) f                 P = exp(scale r - lse)      (softmax)
//   dq += dr k, dk += dr q, times the last factor:
//                     dr = r f dP, 2                     dr = P dP, scale            (softmax)
//   the decay's sums: a row's r^2 f dP, in fp32 in both kernels
//
// Two kernels, one by tiles of keys (mma_gradient_keys.cuh), one by tiles of queries
// (mma_gradient_queries.cuh).
//
// Floor: 7 products of T / 2 x (2 W) operations a token and head at the rate of the tensor cores; with 16
// rows a warp shared memory takes as long as A100's products.
#include "kernels/common/mma_decay.cuh"
#include "kernels/common/mma_gradient_keys.cuh"
#include "kernels/common/mma_gradient_queries.cuh"
#include "kernels/common/reduce.cuh"

namespace kata::cuda {

namespace {

// W / 8 lanes a row.
template <TileScore score, int W>
__global__ void rows_kernel(float* delta, float* factor, TileBackward x, int padded, float scale,
                            AttentionSize size) {
  constexpr int lanes = W / 8;
  const int64_t row = (blockIdx.x * int64_t{256} + threadIdx.x) / lanes;
  if (row >= size.batch * size.heads * padded) return;  // whole warps or none: rows are a multiple of 64
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t t = row % padded, head = row / padded, b = head / size.heads, h = head % size.heads;
  const bool inside = t < size.tokens, reads_o = x.statistic != nullptr;
  float product = 0, statistic = 0;
  if (inside && reads_o) {
    float o[8], d_o[8];
    load<8>(o, x.o.data + b * x.o.batch + t * x.o.token + h * x.o.head + 8 * lane);
    load<8>(d_o, x.d_o.data + b * x.d_o.batch + t * x.d_o.token + h * x.d_o.head + 8 * lane);
#pragma unroll
    for (int i = 0; i < 8; ++i) product += o[i] * d_o[i];
    statistic = x.statistic[(b * size.tokens + t) * size.heads + h];
  }
  product = lane_sum<lanes>(product);
  if (lane != 0) return;
  delta[row] = product;
  if (score != TileScore::softmax)
    statistic = !inside ? 0 : !reads_o ? scale * scale : statistic <= 1e-20f ? 0 : scale * scale / statistic;
  factor[row] = statistic;
}

// Places in scratch, in floats, each a multiple of 16 bytes.
struct Scratch {
  explicit Scratch(const AttentionSize& size) {
    const int64_t rows = size.batch * size.heads * padded_tokens(size);
    delta = take(rows);
    factor = take(rows);
    fade = take(fade_scratch(size));
    query_share = take(size.batch * size.tokens * size.heads);
    key_share = take(size.batch * size.tokens * size.kv_heads);
  }
  int64_t delta, factor, fade, query_share, key_share, used = 0;

 private:
  int64_t take(int64_t n) {
    const int64_t at = used;
    used += ceil_div(n, 4) * 4;
    return at;
  }
};

template <TileScore score, int W>
void launch_backward(GpuStream stream, const TileBackward& x, GradientArguments a,
                     const AttentionSize& size) {
  const int64_t rows = size.batch * size.heads * a.padded;
  rows_kernel<score, W><<<grid(ceil_div(rows * W / 8, 256)), 256, 0, stream>>>(
      const_cast<float*>(a.delta), const_cast<float*>(a.factor), x, a.padded, a.scale, size);
  check_launch("mma_attention rows");
  using Q = QueryPlan<score, W>;
  a.tiles = static_cast<int>(ceil_div(size.tokens, Q::queries));
  launch_tiles(queries_kernel<score, W>, size.batch * size.heads * a.tiles, Q::shared, stream, a);
  using K = KeyPlan<score, W>;
  a.tiles = static_cast<int>(ceil_div(size.tokens, K::keys));
  launch_tiles(keys_kernel<score, W>, size.batch * size.kv_heads * a.tiles, K::shared, stream, a);
}

}  // namespace

int64_t mma_attention_scratch(bool backward, const AttentionSize& size) {
  if (!mma_supports(size, 1)) return 0;
  return backward ? Scratch(size).used : fade_scratch(size);
}

template <TileScore score>
void mma_attention_backward(GpuStream stream, const TileBackward& x, float scale, const AttentionSize& size) {
  if (size.batch * size.tokens * size.heads == 0) return;
  KATA_CHECK(mma_takes(size, scale, x.dq, x.dk, x.dv, x.d_o, x.q, x.k, x.v, x.o));
  KATA_CHECK(score != TileScore::softmax || x.decay.log == nullptr);
  KATA_CHECK(reinterpret_cast<uintptr_t>(x.scratch) % 16 == 0);
  const Scratch at(size);
  const bool fades = x.dlog_decay != nullptr;
  float *query_share = fades ? x.scratch + at.query_share : nullptr,
        *key_share = fades ? x.scratch + at.key_share : nullptr;
  const GradientArguments a = {x.dq,
                               x.dk,
                               x.dv,
                               x.d_o,
                               x.q,
                               x.k,
                               x.v,
                               x.scratch + at.delta,
                               x.scratch + at.factor,
                               query_share,
                               key_share,
                               {x.decay.starts.data, x.decay.starts.time},
                               make_fade(stream, x.scratch + at.fade, x.decay, size),
                               static_cast<int>(size.tokens),
                               static_cast<int>(padded_tokens(size)),
                               static_cast<int>(size.heads),
                               static_cast<int>(size.kv_heads),
                               static_cast<int>(size.group()),
                               0,
                               scale};
  with_mma_width(size.width, [&]<int W>() { launch_backward<score, W>(stream, x, a, size); });
  if (fades) decay_gradient(stream, x.dlog_decay, query_share, key_share, x.decay.starts, size);
}

#define KATA_INSTANCE(score) \
  template void mma_attention_backward<score>(GpuStream, const TileBackward&, float, const AttentionSize&)
KATA_INSTANCE(TileScore::softmax);
KATA_INSTANCE(TileScore::psd1);
KATA_INSTANCE(TileScore::psd2);
KATA_INSTANCE(TileScore::psd4);
#undef KATA_INSTANCE

}  // namespace kata::cuda
