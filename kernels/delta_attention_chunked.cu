// The delta rule in chunks of 64 tokens: inside a chunk a unit triangular system, between chunks a state S.
//
// Forward, in rounds of some chunks of some (batch row, key head) pairs, so that scratch does not grow with
// T:
//   inverse  of every chunk's system, by substitution in fp32: a product of powers would lose every digit on
//            repeated keys (MATH 4)
//   errors   chunks in order, some columns of the values a block: what S answers to the keys is taken from v,
//            the inverse gives the errors, and S takes them
//   read     S and the scores inside the chunk give o, all chunks at once
// Backward: S is kept at the start of every segment, then, segments against time, S is built again inside the
// segment (errors are known), and
//   pull     what the chunk's own queries pass back to its U, all chunks at once
//   unwind   chunks against time: the transposed inverse gives dv, and dS takes do and dv
//   query, key, decay   the other gradients, all chunks at once
// The states go through memory (the L2 cache in part), so any number of features is one path.
//
// Floor: per token and head 6 n dv operations between chunks forward, 16 n dv backward (2 n dv more where
// segments are built twice), and 32 pairs of scores of k with k and of q with k inside, in fp32 on the CUDA
// cores: 0.6 ms forward and 1.4 ms backward for 32,768 tokens of 16 heads of 64 at 60 TFLOP/s. To judge by
// whole training steps they reach a tenth of that: a thread reads shared memory five times for 16 products,
// and every chunk of a walk waits for its loads.
//
// bf16 with identity features of 64 and values of 64 has kernels of its own for the tensor cores
// (common/delta_mma*.cuh), with the same steps and the same numbers in memory. In products of 64 x 64 x 64
// (0.52 million operations), a split factor counted two or three times, a chunk and head take 14 forward and
// 41 backward: 0.15 and 0.45 ms for the size above at 400 TFLOP/s. Per token and head they move 2.3 and 6.4
// KB: 0.3 and 0.85 ms at 4 TB/s, which is the floor. psd on rows of 64 in bf16 goes without states where none
// is asked for (delta_attention_quadratic.cu).
#include "kernels/common/delta_gradient.cuh"
#include "kernels/common/delta_launch.h"
#include "kernels/common/delta_mma_backward.cuh"
#include "kernels/common/delta_squared.h"

namespace kata::cuda {

namespace {

// Sizes that the tensor cores take, in bf16.
bool suits_mma(const FeatureMap& map, const AttentionSize& size) {
  return map.kind == MapKind::identity && map.sigma() == 1 && map.width == tile && size.value_width == tile;
}

// How a call is cut, and its scratch; every number follows from the shape.
struct DeltaPlan {
  DeltaPlan(bool backward, const FeatureMap& map, const AttentionSize& size) {
    const int64_t room = int64_t{1} << (backward ? 27 : 26);  // floats of states, about
    chunks = ceil_div(size.tokens, tile);
    state = map.features() * size.value_width;
    all_pairs = size.batch * size.kv_heads;
    slots = std::clamp<int64_t>(chunks, 1, 64);
    if (!backward)
      slots = std::min(slots, std::max<int64_t>(1, room / state / std::clamp<int64_t>(all_pairs, 1, 128)));
    else if ((2 * slots + ceil_div(chunks, slots) + 1) * all_pairs * state > room)
      slots = std::min(slots, static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(chunks)))));
    segments = ceil_div(std::max<int64_t>(chunks, 1), slots);
    const int64_t held = backward ? 2 * slots + segments + 1 : slots + 1;
    pairs = std::clamp<int64_t>(room / (held * state), 1, std::max<int64_t>(all_pairs, 1));
    // Wide blocks do more with what they load, but about 132 multiprocessors want one each.
    columns = 64;
    while (columns > 16 && pairs * ceil_div(size.value_width, columns) < 132) columns /= 2;
    slices = ceil_div(size.value_width, columns);
    const int64_t rows = size.batch * size.tokens * size.kv_heads;
    inverse = take(pairs * slots * tile * tile);
    states = take(pairs * slots * state);
    if (suits_mma(map, size)) gates = take(pairs * slots * gate_floats);
    carry = take(pairs * state);
    if (!backward) return;
    gradients = take(pairs * slots * state);
    kept = take(segments * pairs * state);
    wide_dv = take(rows * size.value_width);
    parts = take(2 * std::max(slices, mma_slices) * rows);
    query_share = take(size.batch * size.tokens * size.heads);
    key_share = take(rows);
  }
  int64_t chunks, state, all_pairs;
  int64_t pairs, slots, segments;  // of a round; rounds of a pair
  int64_t columns, slices;         // of the values, in a block of the sequential kernels
  static constexpr int64_t mma_slices = tile / walk_columns;
  int64_t inverse, states, carry, gates = 0, gradients = 0, kept = 0, wide_dv = 0, parts = 0, query_share = 0,
                                  key_share = 0;
  int64_t used = 0;

 private:
  int64_t take(int64_t n) {
    const int64_t at = used;
    used += ceil_div(n, 4) * 4;
    return at;
  }
};

// f.template operator()<N>() for blocks of 16 N columns.
template <class F>
void with_columns(int64_t columns, F&& f) {
  if (columns == 64) return f.template operator()<4>();
  if (columns == 32) return f.template operator()<2>();
  f.template operator()<1>();
}

template <class T>
class DeltaPass {
 public:
  DeltaPass(cudaStream_t stream, bool backward, float* scratch, const FeatureMap& map,
            const AttentionSize& size, const float* beta, const LogDecay<float>& decay)
      : plan_(backward, map, size), stream_(stream), scratch_(scratch) {
    call_.map = device_map(map);
    call_.size = size;
    call_.group = static_cast<int>(size.group());
    call_.columns = static_cast<int>(size.value_width);
    call_.chunks = plan_.chunks;
    call_.beta = beta;
    call_.log = decay.log;
    call_.starts = decay.starts.data;
    call_.inverse = scratch + plan_.inverse;
    call_.states = scratch + plan_.states;
    call_.gradients = scratch + plan_.gradients;
    call_.gates = scratch + plan_.gates;
    suits_ = half && suits_mma(map, size);
  }

  void forward(const DeltaForward<T>& f) {
    call_.carried = f.state_in != nullptr;
    call_.errors = f.errors;
    mma_ = suits_ && views_pack(f.o, f.q, f.k, f.v) && packs<float>({f.errors, f.state_in, f.state_out}, {});
    for_each_group([&](int64_t at) {
      float* carry = scratch_ + plan_.carry;
      for (int64_t i = 0; i < plan_.segments; ++i) {
        set_segment(i);
        const float* from = i > 0 ? carry : f.state_in == nullptr ? nullptr : f.state_in + at;
        float* to = i + 1 < plan_.segments ? carry : f.state_out == nullptr ? nullptr : f.state_out + at;
        gates();
        invert<false>();
        advance<true>(f.errors, from, to);
        read(f.o);
      }
    });
  }

  void backward(const DeltaBackward<T>& b) {
    call_.carried = false;
    call_.errors = b.errors;
    call_.dv = scratch_ + plan_.wide_dv;
    mma_ = suits_ && views_pack(b.dq, b.dk, b.dv, b.d_o, b.q, b.k, b.v) && packs<float>({b.errors}, {});
    const int64_t rows = call_.size.batch * call_.size.tokens * call_.size.kv_heads;
    for_each_group([&](int64_t) {
      for (int64_t i = 0; i + 1 < plan_.segments; ++i) {
        set_segment(i);
        gates();
        advance<false>(nullptr, kept(i), scratch_ + plan_.kept + (i + 1) * plan_.pairs * plan_.state);
      }
      for (int64_t i = plan_.segments - 1; i >= 0; --i) {
        set_segment(i);
        gates();
        advance<false>(nullptr, kept(i), nullptr);
        unwind(b, i);
        gradients(b, kept(i + 1));
      }
    });
    sum_parts_kernel<<<grid(ceil_div(rows, tile_threads)), tile_threads, 0, stream_>>>(
        b.dbeta, scratch_ + plan_.parts, static_cast<int>(slices()), rows);
    check_launch("delta_attention dbeta");
  }

  DeltaCall<T>& call() { return call_; }

 private:
  static constexpr bool half = std::is_same_v<T, bf16>;

  int64_t units() const { return call_.pairs * call_.slots; }
  int64_t slices() const { return mma_ ? DeltaPlan::mma_slices : plan_.slices; }
  int64_t value_tiles() const { return ceil_div(call_.columns, tile); }
  // S before segment i, null for the first.
  const float* kept(int64_t i) const {
    return i == 0 ? nullptr : scratch_ + plan_.kept + i * plan_.pairs * plan_.state;
  }

  template <class F>
  void for_each_group(F&& body) {
    for (int64_t first = 0; first < plan_.all_pairs; first += plan_.pairs) {
      call_.first_pair = first;
      call_.pairs = std::min(plan_.pairs, plan_.all_pairs - first);
      body(first * plan_.state);
    }
  }
  void set_segment(int64_t i) {
    call_.begin = i * plan_.slots;
    call_.slots = std::min(plan_.slots, plan_.chunks - call_.begin);
  }

  // What the walks on the tensor cores read of the decay.
  void gates() {
    if constexpr (half)
      if (mma_) launch_threads(tile, chunk_gates_kernel, blocks_of(units(), 1), 0, stream_, call_);
  }
  template <bool backward>
  void invert() {
    if constexpr (half)
      if (mma_)
        return launch_mma(inverse_mma_kernel<0, backward>, blocks_of(units(), 1), inverse_mma_shared, stream_,
                          call_);
    launch(inverse_kernel<T, backward>, blocks_of(units(), 1), inverse_shared(call_), stream_, call_);
  }
  // The states of the segment's chunks.
  template <bool solve>
  void advance(float* errors, const float* from, float* to) {
    if constexpr (half)
      if (mma_)
        return launch_mma(errors_mma_kernel<solve>, blocks_of(call_.pairs, slices()), WalkRoom::bytes,
                          stream_, call_, errors, from, to);
    with_columns(plan_.columns, [&]<int N>() {
      launch(errors_kernel<T, N, solve>, blocks_of(call_.pairs, plan_.slices), errors_shared<T, N>(call_),
             stream_, call_, errors, from, to);
    });
  }
  void read(const TokenHeads<T>& o) {
    if constexpr (half)
      if (mma_)
        return launch_mma(read_mma_kernel, blocks_of(units() * call_.group, 1), read_mma_shared, stream_,
                          call_, o);
    launch(delta_read_kernel<T>, blocks_of(units() * call_.group, value_tiles()), delta_read_shared(call_),
           stream_, call_, o);
  }

  void unwind(const DeltaBackward<T>& b, int64_t segment) {
    float *wide_dv = scratch_ + plan_.wide_dv, *parts = scratch_ + plan_.parts,
          *carry = scratch_ + plan_.carry;
    const float* from = segment + 1 < plan_.segments ? carry : nullptr;
    float* to = segment > 0 ? carry : nullptr;
    invert<true>();
    if constexpr (half)
      if (mma_) {
        launch_mma(pull_mma_kernel, blocks_of(units(), 1), pull_mma_shared, stream_, call_, wide_dv);
        return launch_mma(unwind_mma_kernel, blocks_of(call_.pairs, slices()), WalkRoom::bytes, stream_,
                          call_, b.dv, wide_dv, parts, from, to);
      }
    launch(pull_kernel<T>, blocks_of(units(), value_tiles()), delta_read_shared(call_), stream_, call_,
           wide_dv);
    with_columns(plan_.columns, [&]<int N>() {
      launch(unwind_kernel<T, N>, blocks_of(call_.pairs, plan_.slices), unwind_shared<T, N>(call_), stream_,
             call_, b.dv, wide_dv, parts, from, to);
    });
  }
  void gradients(const DeltaBackward<T>& b, const float* last) {
    const bool fades = b.dlog_decay != nullptr;
    float* query_share = fades ? scratch_ + plan_.query_share : nullptr;
    float* key_share = fades ? scratch_ + plan_.key_share : nullptr;
    query_and_key(b, query_share, key_share);
    if (!fades) return;
    const int64_t rows = call_.size.batch * call_.size.tokens * call_.size.kv_heads;
    const float* answers = scratch_ + plan_.parts + slices() * rows;
    launch(delta_decay_kernel<T>, blocks_of(units(), 1), 0, stream_, call_, b.dlog_decay, query_share,
           key_share, answers, static_cast<int>(slices()), last);
  }
  void query_and_key(const DeltaBackward<T>& b, float* query_share, float* key_share) {
    const dim3 queries = blocks_of(units() * call_.group, 1), keys = blocks_of(units(), 1);
    if constexpr (half)
      if (mma_) {
        launch_mma(query_mma_kernel, queries, query_mma_shared, stream_, call_, b.dq, query_share);
        return launch_mma(key_mma_kernel, keys, key_mma_shared, stream_, call_, b.dk, key_share);
      }
    const int64_t shared = delta_gradient_shared(call_);
    launch(delta_query_kernel<T>, queries, shared, stream_, call_, b.dq, query_share);
    launch(delta_key_kernel<T>, keys, shared, stream_, call_, b.dk, key_share);
  }

  DeltaPlan plan_;
  DeltaCall<T> call_ = {};
  bool suits_ = false, mma_ = false;  // by its sizes; by its pointers and strides too
  cudaStream_t stream_;
  float* scratch_;
};

}  // namespace

int64_t delta_attention_chunked_scratch(bool backward, const FeatureMap& map, const AttentionSize& size) {
  const int64_t floats = DeltaPlan(backward, map, size).used;
  return suits_squared(map, size) ? std::max(floats, delta_squared_scratch(backward, size)) : floats;
}

template <class T>
void delta_attention_chunked_forward(GpuStream stream, const DeltaForward<T>& call, const FeatureMap& map,
                                     const AttentionSize& size) {
  if (size.tokens == 0)
    return pass_state(stream, call.state_out, call.state_in,
                      size.batch * size.kv_heads * map.features() * size.value_width);
  if (size.batch == 0) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (suits_squared(map, size) && call.state_in == nullptr && call.state_out == nullptr &&
        views_pack(call.o, call.q, call.k, call.v) && packs<float>({call.errors}, {}))
      return delta_squared_forward(stream, call, map, size);
  DeltaPass<T> pass(stream, false, call.scratch, map, size, call.beta, call.decay);
  pass.call().q = call.q;
  pass.call().k = call.k;
  pass.call().v = call.v;
  pass.forward(call);
}

template <class T>
void delta_attention_chunked_backward(GpuStream stream, const DeltaBackward<T>& call, const FeatureMap& map,
                                      const AttentionSize& size) {
  if (size.batch * size.tokens == 0) return;
  if constexpr (std::is_same_v<T, bf16>)
    if (suits_squared(map, size) && packs<float>({call.errors}, {}) &&
        views_pack(call.dq, call.dk, call.dv, call.d_o, call.q, call.k, call.v))
      return delta_squared_backward(stream, call, map, size);
  DeltaPass<T> pass(stream, true, call.scratch, map, size, call.beta, call.decay);
  pass.call().q = call.q;
  pass.call().k = call.k;
  pass.call().v = call.v;
  pass.call().d_o = call.d_o;
  pass.backward(call);
}

#define KATA_INSTANTIATE(T)                                                                                \
  template void delta_attention_chunked_forward<T>(GpuStream, const DeltaForward<T>&, const FeatureMap&,   \
                                                   const AttentionSize&);                                  \
  template void delta_attention_chunked_backward<T>(GpuStream, const DeltaBackward<T>&, const FeatureMap&, \
                                                    const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
