// Linear attention in chunks: scores inside a chunk, a state S = sum f(k) [v, 1] between chunks.
//
// Work goes in rounds of some chunks of some (batch row, key head) pairs, so that the states of a round fit
// into scratch that does not grow with T. Three kernels a round (kernels/common/chunk_kernels.cuh):
//   totals   what each chunk adds to the state, features built in shared memory
//   scan     chunks in order: totals become the states before each chunk, with the decay
//   read     a tile of queries a block: its features times the state, plus the scores inside the chunk
// The backward pass is the same twice: S in time for dq (gradient_kernel), then, with
// R = sum f(q)^T [do / D, -<o, do> / D], against time for dk and dv (read_kernel).
// A chunk is a multiple of 64 tokens, and longer than asked for where a state is large: a round trip of the
// state through memory must be worth its chunk.
//
// Floor: per token and head 4 n (dv + 1) operations between chunks (backward 10 n (dv + 1)) and C / 2 pairs
// of the quadratic form inside, in fp32 on the CUDA cores for both element types.
#include "kernels/common/chunk_gradient.cuh"

namespace kata::cuda {

namespace {

// How a call is cut, and its scratch; every number follows from the shape.
struct ChunkPlan {
  ChunkPlan(bool backward, const LinearAttention& settings, const AttentionSize& size) {
    const int64_t features = settings.map.features();
    chunk = ceil_div(std::max({std::min(settings.chunk, size.tokens), std::min(features / 8, size.tokens),
                               int64_t{1}}),
                     tile) *
            tile;
    chunks = ceil_div(size.tokens, chunk);
    columns = state_columns(settings.read, size.value_width);
    state = features * columns;
    all_pairs = size.batch * size.kv_heads;
    value_tiles = ceil_div(size.value_width, value_columns - 1);
    tile_values = ceil_div(size.value_width, value_tiles);
    // 128 MiB of states at a time: some thousand blocks of work at any size.
    const int64_t most = std::max<int64_t>(1, (int64_t{1} << 25) / state);
    slots = std::clamp<int64_t>(chunks, 1, most);
    pairs = std::clamp<int64_t>(most / slots, 1, std::min<int64_t>(std::max<int64_t>(all_pairs, 1), 65535));
    const int64_t key_rows = size.batch * size.tokens * size.kv_heads;
    const int64_t query_rows = size.batch * size.tokens * size.heads;
    // In elements of 4 bytes; the sums of log a are doubles and stand first.
    log_sums = take(2 * key_rows);
    // The quadratic form is one chunk that no state enters or leaves.
    const bool stateless = settings.form == Form::quadratic;
    if (stateless) pairs = std::clamp<int64_t>(all_pairs, 1, 65535);
    states = take(stateless ? 0 : pairs * slots * state);
    carry = take(stateless ? 0 : pairs * state);
    inverse = take(backward ? query_rows : 0);
    mass_gradient = take(backward ? query_rows : 0);
    query_share = take(backward ? query_rows : 0);
    key_share = take(backward ? key_rows : 0);
  }
  int64_t chunk, chunks, columns, state, all_pairs, value_tiles, tile_values;
  int64_t pairs, slots;  // of a round
  int64_t log_sums, states, carry, inverse, mass_gradient, query_share, key_share, used = 0;

 private:
  int64_t take(int64_t n) {
    const int64_t at = used;
    used += ceil_div(n, 4) * 4;
    return at;
  }
};

// sums[pair][t] = the sum of log a from the first token of t's chunk to t; a warp has a chunk. The log of a
// document's first token is not read: what it would fade is not seen. Below -1000 a factor is 0 anyway.
__global__ void log_sum_kernel(double* sums, LogDecay<float> decay, int64_t chunk, int64_t chunks,
                               int64_t units) {
  const int64_t unit = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (unit >= units) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t pair = unit / chunks, b = pair / decay.heads, h = pair % decay.heads;
  const int64_t begin = unit % chunks * chunk;
  const int64_t end = begin + chunk < decay.tokens ? begin + chunk : decay.tokens;
  const int32_t* starts = decay.starts.data;
  double before = 0;
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t t = first + lane;
    double sum = 0;
    if (t < end && (starts == nullptr || starts[b * decay.tokens + t] != t)) {
      const float log = decay.log[(b * decay.tokens + t) * decay.heads + h];
      sum = log < -1000.f ? -1000. : static_cast<double>(log);
    }
    for (int step = 1; step < 32; step *= 2) {
      const double left = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += left;
    }
    sum += before;
    if (t < end) sums[pair * decay.tokens + t] = sum;
    before = __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
}

// inverse = 1 / D and mass_gradient = -<o, do> / D, 0 where D is at or below the floor; a warp has a row.
template <class T>
__global__ void mass_rows_kernel(float* inverse, float* mass_gradient, TokenHeads<const T> o,
                                 TokenHeads<const T> d_o, const float* mass, AttentionSize size) {
  const int64_t row = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32;
  if (row >= size.batch * size.tokens * size.heads) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t h = row % size.heads, t = row / size.heads % size.tokens, b = row / size.heads / size.tokens;
  const T *x = head_row(o, b, t, h), *dx = head_row(d_o, b, t, h);
  float sum = 0;
  for (int64_t j = lane; j < size.value_width; j += 32) sum += to_float(x[j]) * to_float(dx[j]);
  sum = lane_sum<32>(sum);
  if (lane != 0) return;
  const bool none = mass[row] <= static_cast<float>(mass_floor);
  inverse[row] = none ? 0.f : 1 / mass[row];
  mass_gradient[row] = none ? 0.f : -sum / mass[row];
}

// dlog a_t = the sum of dc over t and the later tokens of its document; dc is the queries' shares less the
// key's. A warp has a (batch row, key head) and goes against time, 32 tokens at once.
__global__ void decay_gradient_kernel(float* dlog, const float* query_share, const float* key_share,
                                      const int32_t* starts, AttentionSize size) {
  const int64_t b = blockIdx.x / size.kv_heads, kv = blockIdx.x % size.kv_heads;
  const int64_t group = size.heads / size.kv_heads;
  const int lane = static_cast<int>(threadIdx.x);
  double later = 0;
  int later_start = -1;
  for (int64_t first = (size.tokens - 1) / 32 * 32; first >= 0; first -= 32) {
    const int64_t t = first + lane, row = b * size.tokens + t;
    const bool inside = t < size.tokens;
    double sum = 0;
    if (inside) {
      float queries = 0;
      for (int64_t i = 0; i < group; ++i) queries += query_share[row * size.heads + kv * group + i];
      sum = static_cast<double>(queries) - static_cast<double>(key_share[row * size.kv_heads + kv]);
    }
    const int start = !inside ? -1 : starts == nullptr ? 0 : starts[row];
    const bool last = first + 32 >= size.tokens;
    for (int step = 1; step < 32; step *= 2) {
      const double right = __shfl_down_sync(0xFFFFFFFFu, sum, step);
      const int right_start = __shfl_down_sync(0xFFFFFFFFu, start, step);
      if (lane + step < 32 && t + step < size.tokens && right_start == start) sum += right;
    }
    if (!last && inside && start == later_start) sum += later;
    if (inside) {
      const bool begins = t == 0 || (starts != nullptr && start == t);
      dlog[row * size.kv_heads + kv] = begins ? 0.f : static_cast<float>(sum);
    }
    later = __shfl_sync(0xFFFFFFFFu, sum, 0);
    later_start = __shfl_sync(0xFFFFFFFFu, start, 0);
  }
}

template <class Kernel, class... Args>
void launch(Kernel kernel, dim3 blocks, int64_t shared, cudaStream_t stream, Args... args) {
  KATA_CHECK(shared <= 232448, "linear_attention: {} bytes of shared memory", shared);
  allow_shared(kernel, static_cast<size_t>(shared));
  kernel<<<blocks, tile_threads, static_cast<size_t>(shared), stream>>>(args...);
  check_launch("linear_attention_chunked");
}

template <class T>
class ChunkPass {
 public:
  ChunkPass(cudaStream_t stream, bool backward, float* scratch, const LinearAttention& settings,
            const AttentionSize& size, const LogDecay<float>& decay)
      : plan_(backward, settings, size), stream_(stream), scratch_(scratch) {
    call_.map = device_map(settings.map);
    call_.size = size;
    call_.normalised = settings.read == Read::normalised;
    call_.chunk = plan_.chunk;
    call_.chunks = plan_.chunks;
    call_.columns = static_cast<int>(plan_.columns);
    call_.group = static_cast<int>(size.group());
    call_.tile_values = static_cast<int>(plan_.tile_values);
    call_.states = scratch + plan_.states;
    call_.fade = {nullptr, decay.starts.data, size.tokens};
    if (decay.log == nullptr) return;
    double* sums = reinterpret_cast<double*>(scratch + plan_.log_sums);
    const int64_t units = plan_.all_pairs * plan_.chunks;
    log_sum_kernel<<<grid(ceil_div(units, 4)), 128, 0, stream>>>(sums, decay, plan_.chunk, plan_.chunks,
                                                                 units);
    check_launch("linear_attention log sums");
    call_.fade.log_sums = sums;
  }

  void forward(const TokenHeads<T>& o, float* mass, const float* state_in, float* state_out) {
    call_.carried = state_in != nullptr;
    for_each_round<false>(state_in, state_out, [&](int64_t count) {
      launch(read_kernel<T, false>, tiles(count * call_.group, plan_.value_tiles), read_shared(call_),
             stream_, call_, o, mass);
    });
  }

  void backward(const LinearAttentionBackward<T>& b) {
    const int64_t rows = call_.size.batch * call_.size.tokens * call_.size.heads;
    if (call_.normalised) {
      float *inverse = scratch_ + plan_.inverse, *gradient = scratch_ + plan_.mass_gradient;
      mass_rows_kernel<T>
          <<<grid(ceil_div(rows, 8)), 256, 0, stream_>>>(inverse, gradient, b.o, b.d_o, b.mass, call_.size);
      check_launch("linear_attention mass rows");
      call_.inverse = inverse;
      call_.mass_gradient = gradient;
    }
    const bool fades = b.dlog_decay != nullptr;
    float* query_share = fades ? scratch_ + plan_.query_share : nullptr;
    float* key_share = fades ? scratch_ + plan_.key_share : nullptr;
    call_.carried = false;
    for_each_round<false>(nullptr, nullptr, [&](int64_t count) {
      launch(gradient_kernel<T, false>, tiles(count * call_.group, 1), gradient_shared(call_), stream_, call_,
             b.dq, query_share);
    });
    for_each_round<true>(nullptr, nullptr, [&](int64_t count) {
      launch(gradient_kernel<T, true>, tiles(count, 1), gradient_shared(call_), stream_, call_, b.dk,
             key_share);
      launch(read_kernel<T, true>, tiles(count, plan_.value_tiles), read_shared(call_), stream_, call_, b.dv,
             static_cast<float*>(nullptr));
    });
    if (!fades) return;
    decay_gradient_kernel<<<grid(plan_.all_pairs), 32, 0, stream_>>>(b.dlog_decay, query_share, key_share,
                                                                     call_.fade.starts, call_.size);
    check_launch("linear_attention decay gradient");
  }

  ChunkCall<T>& call() { return call_; }

 private:
  dim3 tiles(int64_t units, int64_t columns) const {
    KATA_CHECK(call_.chunk / tile <= 65535, "linear_attention: chunks of {}", call_.chunk);
    return {grid(units * call_.slots), static_cast<unsigned>(call_.chunk / tile),
            static_cast<unsigned>(columns)};
  }

  // read(pairs of the round) with the states before every chunk (backward: after it) in place
  template <bool backward, class F>
  void for_each_round(const float* state_in, float* state_out, F&& read) {
    const int64_t rounds = ceil_div(plan_.chunks, plan_.slots);
    float* carry = scratch_ + plan_.carry;
    for (int64_t first = 0; first < plan_.all_pairs; first += plan_.pairs) {
      const int64_t count = std::min(plan_.pairs, plan_.all_pairs - first), at = first * plan_.state;
      for (int64_t i = 0; i < rounds; ++i) {
        const int64_t begin = (backward ? rounds - 1 - i : i) * plan_.slots;
        call_.first_pair = first;
        call_.begin = begin;
        call_.slots = std::min(plan_.slots, plan_.chunks - begin);
        const float* from = i > 0 ? carry : state_in == nullptr ? nullptr : state_in + at;
        float* to = i + 1 < rounds ? carry : state_out == nullptr ? nullptr : state_out + at;
        if (plan_.chunks > 1 || from != nullptr || to != nullptr) advance<backward>(count, from, to);
        read(count);
      }
    }
  }
  template <bool backward>
  void advance(int64_t count, const float* from, float* to) {
    const dim3 blocks = {grid(count * call_.slots), static_cast<unsigned>(ceil_div(call_.map.features, tile)),
                         static_cast<unsigned>(plan_.value_tiles)};
    launch(totals_kernel<T, backward>, blocks, totals_shared(call_), stream_, call_);
    const dim3 scan = {grid(ceil_div(plan_.state, tile_threads)), static_cast<unsigned>(count), 1};
    launch(scan_kernel<T, backward>, scan, 0, stream_, call_, from, to);
  }

  ChunkPlan plan_;
  ChunkCall<T> call_ = {};
  cudaStream_t stream_;
  float* scratch_;
};

}  // namespace

int64_t linear_attention_chunked_scratch(bool backward, const LinearAttention& settings,
                                         const AttentionSize& size) {
  return ChunkPlan(backward, settings, size).used;
}

template <class T>
void linear_attention_chunked_forward(GpuStream stream, const LinearAttentionForward<T>& call,
                                      const LinearAttention& settings, const AttentionSize& size) {
  const int64_t states =
      size.batch * state_entries(settings.map, settings.read, size.kv_heads, size.value_width);
  if (size.tokens == 0) return pass_state(stream, call.state_out, call.state_in, states);
  if (size.batch == 0) return;
  ChunkPass<T> pass(stream, false, call.scratch, settings, size, call.decay);
  pass.call().q = call.q;
  pass.call().k = call.k;
  pass.call().v = call.v;
  pass.forward(call.o, call.mass, call.state_in, call.state_out);
}

template <class T>
void linear_attention_chunked_backward(GpuStream stream, const LinearAttentionBackward<T>& call,
                                       const LinearAttention& settings, const AttentionSize& size) {
  if (size.batch * size.tokens == 0) return;
  ChunkPass<T> pass(stream, true, call.scratch, settings, size, call.decay);
  pass.call().q = call.q;
  pass.call().k = call.k;
  pass.call().v = call.v;
  pass.call().d_o = call.d_o;
  pass.backward(call);
}

#define KATA_INSTANTIATE(T)                                                                        \
  template void linear_attention_chunked_forward<T>(GpuStream, const LinearAttentionForward<T>&,   \
                                                    const LinearAttention&, const AttentionSize&); \
  template void linear_attention_chunked_backward<T>(GpuStream, const LinearAttentionBackward<T>&, \
                                                     const LinearAttention&, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
