// Linear attention token by token: the step of generation, and the same over a sequence.
//
// Floor of the step: memory. The state, n (dv + 1) floats a key head, is read and written once. A block has
// 64 rows of it and leaves its part of every query head's read; a second kernel adds the parts in order and
// normalises. A sequence is a step a token, so that a state that is handed over has been through the same
// arithmetic as in generation; its gradient is that of the same function in chunks, which keeps no state a
// token either.
#include "kernels/common/features.cuh"
#include "ops/linear_attention.h"

namespace kata::cuda {

namespace {

constexpr int slice = 64;        // rows of a state in a block
constexpr int warps = 8;         // of a block; each has slice / warps rows
constexpr int column_tile = 96;  // columns of a state in a block: 3 a lane
constexpr int head_tile = 4;     // query heads that read a row while it is in registers

template <class T>
struct TokenCall {
  DeviceMap map;
  AttentionSize size;
  int group, columns;
  bool normalised;
  TokenHeads<const T> q, k, v;
  TokenHeads<T> o;
  float* mass;        // [B, T, Hq] or null
  const float* from;  // [B, Hkv, n, columns]; null: empty
  float* to;          // may be from
  float* parts;       // [B * Hkv, slices, group, columns]
  const float* log;   // [B, T, Hkv] or null
  const int32_t* starts;
};

int64_t slices_of(int64_t features) {
  return ceil_div(features, slice);
}

template <class T>
int64_t token_shared(const TokenCall<T>& call) {
  return ((1 + head_tile) * (call.map.width + slice) + warps * head_tile * column_tile) * int64_t{4};
}

// The state fades, takes token t, and is read.
template <class T>
__global__ void __launch_bounds__(32 * warps) token_kernel(TokenCall<T> call, int64_t t) {
  extern __shared__ float shared[];
  const int width = call.map.width, thread = static_cast<int>(threadIdx.x);
  float *u = shared, *f = u + (1 + head_tile) * width;  // [1 + head_tile][width] and [..][slice]: k, then q
  float* sums = f + (1 + head_tile) * slice;            // [warps][head_tile][column_tile]
  const int64_t pair = blockIdx.x, b = pair / call.size.kv_heads, kv = pair % call.size.kv_heads;
  const int first = static_cast<int>(blockIdx.y) * slice, e = static_cast<int>(blockIdx.z) * column_tile;
  const int rows = min(slice, call.map.features - first), columns = min(column_tile, call.columns - e);
  const int lane = thread % 32, warp = thread / 32;
  const T* v = head_row(call.v, b, t, kv);
  float value[3];
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    const int c = e + lane + 32 * j;
    value[j] = c < call.size.value_width ? to_float(v[c]) : c < call.columns ? 1.f : 0.f;
  }
  const bool begins = call.starts != nullptr && call.starts[b * call.size.tokens + t] == t;
  const float log =
      call.log == nullptr || begins ? 0.f : call.log[(b * call.size.tokens + t) * call.size.kv_heads + kv];
  const float keep = begins || log < -87.f ? 0.f : expf(log);
  const int64_t base = (pair * call.map.features + first) * call.columns + e;

  for (int h = 0; h < call.group; h += head_tile) {
    const int heads = min(head_tile, call.group - h);
    if (warp <= heads) {
      if (warp == 0)
        lift_row(u, 1, head_row(call.k, b, t, kv), call.map, lane);
      else
        lift_row(u + warp * width, 1, head_row(call.q, b, t, kv * call.group + h + warp - 1), call.map, lane);
    }
    __syncthreads();
    for (int i = thread; i < (1 + head_tile) * slice; i += 32 * warps) {
      const int row = i / slice, p = i % slice;
      f[i] = row <= heads && p < rows
                 ? feature_of(call.map, feature_entry(call.map, first + p), u + row * width, 1)
                 : 0.f;
    }
    __syncthreads();
    float read[head_tile][3] = {};
    for (int p = warp; p < rows; p += warps) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        const int c = lane + 32 * j;
        if (c >= columns) continue;
        const int64_t place = base + int64_t{p} * call.columns + c;
        float s;
        if (h > 0) {
          s = call.to[place];
        } else {
          s = call.from == nullptr || keep == 0 ? 0.f : keep * call.from[place];
          s += f[p] * value[j];
          call.to[place] = s;
        }
#pragma unroll
        for (int i = 0; i < head_tile; ++i) read[i][j] += f[(1 + i) * slice + p] * s;
      }
    }
#pragma unroll
    for (int i = 0; i < head_tile; ++i)
#pragma unroll
      for (int j = 0; j < 3; ++j) sums[(warp * head_tile + i) * column_tile + lane + 32 * j] = read[i][j];
    __syncthreads();
    for (int i = thread; i < heads * columns; i += 32 * warps) {
      float sum = 0;
      for (int w = 0; w < warps; ++w) sum += sums[(w * head_tile + i / columns) * column_tile + i % columns];
      call.parts[((pair * gridDim.y + blockIdx.y) * call.group + h + i / columns) * call.columns + e +
                 i % columns] = sum;
    }
    __syncthreads();
  }
}

// o of token t, a block a query head: the sum of the slices' parts, normalised.
template <class T>
__global__ void finish_kernel(TokenCall<T> call, int64_t t, int slices) {
  const int64_t b = blockIdx.x / call.size.heads, h = blockIdx.x % call.size.heads;
  const int64_t pair = b * call.size.kv_heads + h / call.group;
  const auto sum_of = [&](int64_t column) {
    float sum = 0;
    for (int i = 0; i < slices; ++i)
      sum += call.parts[((pair * slices + i) * call.group + h % call.group) * call.columns + column];
    return sum;
  };
  const float mass = call.normalised ? sum_of(call.columns - 1) : 1.f;
  for (int64_t c = threadIdx.x; c < call.size.value_width; c += blockDim.x) {
    const float sum = sum_of(c);
    const float value = !call.normalised ? sum : mass <= static_cast<float>(mass_floor) ? 0.f : sum / mass;
    head_row(call.o, b, t, h)[c] = from_float<T>(value);
  }
  if (call.mass != nullptr && threadIdx.x == 0)
    call.mass[(b * call.size.tokens + t) * call.size.heads + h] = mass;
}

template <class T>
TokenCall<T> token_call(const FeatureMap& map, Read read, const AttentionSize& size) {
  TokenCall<T> call = {};
  call.map = device_map(map);
  call.size = size;
  call.group = static_cast<int>(size.group());
  call.columns = static_cast<int>(state_columns(read, size.value_width));
  call.normalised = read == Read::normalised;
  return call;
}

template <class T>
void launch_token(cudaStream_t stream, const TokenCall<T>& call, int64_t t) {
  const int64_t slices = slices_of(call.map.features), shared = token_shared(call);
  const dim3 blocks = {grid(call.size.batch * call.size.kv_heads), static_cast<unsigned>(slices),
                       static_cast<unsigned>(ceil_div(call.columns, column_tile))};
  KATA_CHECK(slices <= 65535, "linear_attention_step: {} features", call.map.features);
  allow_shared(token_kernel<T>, static_cast<size_t>(shared));
  token_kernel<T><<<blocks, 32 * warps, static_cast<size_t>(shared), stream>>>(call, t);
  check_launch("linear_attention_step");
  finish_kernel<T>
      <<<grid(call.size.batch * call.size.heads), 64, 0, stream>>>(call, t, static_cast<int>(slices));
  check_launch("linear_attention_step read");
}

int64_t parts_of(const FeatureMap& map, Read read, const AttentionSize& size) {
  return size.batch * size.heads * slices_of(map.features()) * state_columns(read, size.value_width);
}
int64_t states_of(const LinearAttention& settings, const AttentionSize& size) {
  return size.batch * state_entries(settings.map, settings.read, size.kv_heads, size.value_width);
}
// The gradient of a sequence goes in the shortest chunks.
LinearAttention in_chunks(LinearAttention settings) {
  settings.form = Form::chunked;
  settings.chunk = 1;
  return settings;
}

}  // namespace

int64_t linear_attention_recurrent_scratch(bool backward, const LinearAttention& settings,
                                           const AttentionSize& size) {
  if (backward) return linear_attention_chunked_scratch(true, in_chunks(settings), size);
  return parts_of(settings.map, settings.read, size) + states_of(settings, size);
}

template <class T>
void linear_attention_recurrent_forward(GpuStream stream, const LinearAttentionForward<T>& call,
                                        const LinearAttention& settings, const AttentionSize& size) {
  // Without a token the state is passed on by the chunked form.
  if (size.tokens == 0) return linear_attention_chunked_forward<T>(stream, call, in_chunks(settings), size);
  if (size.batch == 0) return;
  TokenCall<T> token = token_call<T>(settings.map, settings.read, size);
  token.q = call.q;
  token.k = call.k;
  token.v = call.v;
  token.o = call.o;
  token.mass = call.mass;
  token.parts = call.scratch;
  token.from = call.state_in;
  token.to =
      call.state_out != nullptr ? call.state_out : call.scratch + parts_of(settings.map, settings.read, size);
  token.log = call.decay.log;
  token.starts = call.decay.starts.data;
  for (int64_t t = 0; t < size.tokens; ++t) {
    launch_token(stream, token, t);
    token.from = token.to;
  }
}

template <class T>
void linear_attention_recurrent_backward(GpuStream stream, const LinearAttentionBackward<T>& call,
                                         const LinearAttention& settings, const AttentionSize& size) {
  linear_attention_chunked_backward<T>(stream, call, in_chunks(settings), size);
}

int64_t linear_attention_step_scratch(const FeatureMap& map, Read read, const AttentionSize& size) {
  return parts_of(map, read, size);
}

template <class T>
void linear_attention_step(GpuStream stream, const LinearAttentionStep<T>& call, const FeatureMap& map,
                           Read read, const AttentionSize& size) {
  if (size.batch == 0) return;
  TokenCall<T> token = token_call<T>(map, read, size);
  token.q = call.q;
  token.k = call.k;
  token.v = call.v;
  token.o = call.o;
  token.parts = call.scratch;
  token.from = token.to = call.state;
  token.log = call.log_decay;
  launch_token(stream, token, 0);
}

#define KATA_INSTANTIATE(T)                                                                                 \
  template void linear_attention_recurrent_forward<T>(GpuStream, const LinearAttentionForward<T>&,          \
                                                      const LinearAttention&, const AttentionSize&);        \
  template void linear_attention_recurrent_backward<T>(GpuStream, const LinearAttentionBackward<T>&,        \
                                                       const LinearAttention&, const AttentionSize&);       \
  template void linear_attention_step<T>(GpuStream, const LinearAttentionStep<T>&, const FeatureMap&, Read, \
                                         const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
