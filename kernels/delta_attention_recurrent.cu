// The delta rule token by token: the step of generation, and the same over a sequence.
//
// Floor of the step: memory. The state, n dv floats a key head, is read twice and written once: what it
// answers to k has to be known before it can be corrected; the second read mostly finds it in the L2 cache.
// Columns of the values do not see each other, so a block has a few of them and the whole sequence. The
// gradient of a sequence is that of the same function in chunks.
#include "kernels/common/features.cuh"
#include "ops/delta_attention.h"

namespace kata::cuda {

namespace {

constexpr int width = 8;      // columns of a state in a block: a sector of each row
constexpr int threads = 256;  // of a block: row lanes x columns
constexpr int lanes = threads / width;
constexpr int feature_tile = 2304;  // features that are built at once

template <class T>
struct SequenceCall {
  DeviceMap map;
  AttentionSize size;
  int group, columns;  // query heads of a key head; dv
  TokenHeads<const T> q, k, v;
  TokenHeads<T> o;
  float* errors;      // [B, T, Hkv, dv] or null
  const float* beta;  // [B, T, Hkv]
  const float* log;   // likewise, or null
  const int32_t* starts;
  const float* from;  // [B, Hkv, n, dv]; null: empty
  float* to;          // may be from
};

template <class T>
int64_t sequence_shared(const SequenceCall<T>& call) {
  return ((1 + call.group) * int64_t{call.map.width} + 2 * feature_tile + threads / 32 * width + width +
          call.group * width) *
         4;
}

// The sum of x over all row lanes, a column each, in sums[column]; in a fixed order.
__device__ __forceinline__ void sum_rows(float* sums, float* parts, float x) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int step = 16; step >= width; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  if (thread % 32 < width) parts[thread / 32 * width + thread % 32] = x;
  __syncthreads();
  if (thread < width) {
    float sum = 0;
    for (int w = 0; w < threads / 32; ++w) sum += parts[w * width + thread];
    sums[thread] += sum;
  }
  __syncthreads();
}

// f = features first .. first + n of a lifted row. Takes and leaves the block in step.
__device__ __forceinline__ void build_features(float* f, const float* u, const DeviceMap& map, int first,
                                               int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += threads)
    f[i] = feature_of(map, feature_entry(map, first + i), u, 1);
  __syncthreads();
}

// All tokens of a pair, some columns a block. A thread has the same numbers of the state throughout.
template <class T>
__global__ void __launch_bounds__(threads, 2) sequence_kernel(SequenceCall<T> call) {
  extern __shared__ float shared[];
  const DeviceMap& map = call.map;
  float *u = shared, *fk = u + (1 + call.group) * map.width, *fq = fk + feature_tile;
  float *parts = fq + feature_tile, *answer = parts + threads / 32 * width, *out = answer + width;
  const int thread = static_cast<int>(threadIdx.x), lane = thread / width, c = thread % width;
  const int64_t pair = blockIdx.x, b = pair / call.size.kv_heads, kv = pair % call.size.kv_heads;
  const int column = static_cast<int>(blockIdx.y) * width + c;
  const bool inside = column < call.columns;
  const int64_t base = pair * map.features * call.columns + column;
  const float* from = call.from;

  for (int64_t t = 0; t < call.size.tokens; ++t) {
    const int64_t gate = (b * call.size.tokens + t) * call.size.kv_heads + kv;
    const bool begins = call.starts != nullptr && call.starts[b * call.size.tokens + t] == t;
    const float log = call.log == nullptr || begins ? 0.f : call.log[gate];
    const float keep = begins || from == nullptr || log < -87.f ? 0.f : expf(log);
    for (int i = thread / 32; i <= call.group; i += threads / 32)
      lift_row(u + i * map.width, 1,
               i == 0 ? head_row(call.k, b, t, kv) : head_row(call.q, b, t, kv * call.group + i - 1), map,
               thread % 32);
    for (int i = thread; i < (1 + call.group) * width; i += threads) answer[i] = 0;  // and out
    __syncthreads();

    // What the state answers to k; nothing where nothing is kept.
    float sum = 0;
    for (int p = 0; p < map.features; p += feature_tile) {
      const int n = min(feature_tile, map.features - p);
      build_features(fk, u, map, p, n);
      if (inside && keep != 0)
        for (int i = lane; i < n; i += lanes) sum += fk[i] * from[base + int64_t{p + i} * call.columns];
      if (map.features > feature_tile) __syncthreads();
    }
    sum_rows(answer, parts, sum);
    float written = 0;
    if (inside) {
      const float error = to_float(head_row(call.v, b, t, kv)[column]) - (keep == 0 ? 0.f : keep * answer[c]);
      written = call.beta[gate] * error;
      if (call.errors != nullptr && lane == 0) call.errors[gate * call.columns + column] = error;
    }

    for (int p = 0; p < map.features; p += feature_tile) {
      const int n = min(feature_tile, map.features - p);
      if (map.features > feature_tile) build_features(fk, u, map, p, n);
      for (int h = 0; h < call.group; ++h) {
        build_features(fq, u + (1 + h) * map.width, map, p, n);
        float read = 0;
        if (inside)
          for (int i = lane; i < n; i += lanes) {
            const int64_t place = base + int64_t{p + i} * call.columns;
            float s;
            if (h > 0) {
              s = call.to[place];
            } else {
              s = (keep == 0 ? 0.f : keep * from[place]) + fk[i] * written;
              call.to[place] = s;
            }
            read += fq[i] * s;
          }
        sum_rows(out + h * width, parts, read);
      }
    }
    for (int i = thread; i < call.group * width; i += threads) {
      const int at = static_cast<int>(blockIdx.y) * width + i % width;
      if (at < call.columns) head_row(call.o, b, t, kv * call.group + i / width)[at] = from_float<T>(out[i]);
    }
    __syncthreads();
    from = call.to;
  }
}

template <class T>
void launch_sequence(cudaStream_t stream, const SequenceCall<T>& call) {
  const int64_t shared = sequence_shared(call), slices = ceil_div(call.columns, width);
  KATA_CHECK(shared <= 163 * 1024 && slices <= 65535, "delta_attention: {} bytes of shared memory", shared);
  allow_shared(sequence_kernel<T>, static_cast<size_t>(shared));
  const dim3 blocks = {grid(call.size.batch * call.size.kv_heads), static_cast<unsigned>(slices), 1};
  sequence_kernel<T><<<blocks, threads, static_cast<size_t>(shared), stream>>>(call);
  check_launch("delta_attention_recurrent");
}

template <class T>
SequenceCall<T> sequence_call(const FeatureMap& map, const AttentionSize& size) {
  SequenceCall<T> call = {};
  call.map = device_map(map);
  call.size = size;
  call.group = static_cast<int>(size.group());
  call.columns = static_cast<int>(size.value_width);
  return call;
}

}  // namespace

// The state of a call that hands none out.
int64_t delta_attention_recurrent_scratch(const FeatureMap& map, const AttentionSize& size) {
  return size.batch * size.kv_heads * map.features() * size.value_width;
}

template <class T>
void delta_attention_recurrent_forward(GpuStream stream, const DeltaForward<T>& call, const FeatureMap& map,
                                       const AttentionSize& size) {
  // Without a token the state is passed on by the chunked form.
  if (size.tokens == 0) return delta_attention_chunked_forward<T>(stream, call, map, size);
  if (size.batch == 0) return;
  SequenceCall<T> sequence = sequence_call<T>(map, size);
  sequence.q = call.q;
  sequence.k = call.k;
  sequence.v = call.v;
  sequence.o = call.o;
  sequence.errors = call.errors;
  sequence.beta = call.beta;
  sequence.log = call.decay.log;
  sequence.starts = call.decay.starts.data;
  sequence.from = call.state_in;
  sequence.to = call.state_out != nullptr ? call.state_out : call.scratch;
  launch_sequence(stream, sequence);
}

template <class T>
void delta_attention_step(GpuStream stream, const DeltaStep<T>& call, const FeatureMap& map,
                          const AttentionSize& size) {
  if (size.batch == 0) return;
  SequenceCall<T> sequence = sequence_call<T>(map, size);
  sequence.q = call.q;
  sequence.k = call.k;
  sequence.v = call.v;
  sequence.o = call.o;
  sequence.beta = call.beta;
  sequence.log = call.log_decay;
  sequence.from = sequence.to = call.state;
  launch_sequence(stream, sequence);
}

#define KATA_INSTANTIATE(T)                                                                                \
  template void delta_attention_recurrent_forward<T>(GpuStream, const DeltaForward<T>&, const FeatureMap&, \
                                                     const AttentionSize&);                                \
  template void delta_attention_step<T>(GpuStream, const DeltaStep<T>&, const FeatureMap&,                 \
                                        const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
