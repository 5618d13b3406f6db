// Linear attention in chunks: scores inside a chunk, a state between chunks (ops/cpu/chunk_walk.h).
//
// Forward, state S exclusive at the chunk:         [num, mass] = g f(Q) S + inside,   S = a S + f(K)^T h [V,
// 1] Backward, G = [do / D, -<o, do> / D]:            df(Q) = g G S^T, chunks ascending;
//   R = a R + f(Q)^T g G over the later chunks:    df(K) = h [V, 1] R^T, dv = h f(K) R, chunks descending
// with g, h, a the decay from the chunk's start to a token, from a token to the end, and over the chunk.
//
// Floor: per token and head 4 n (dv + 1) operations between chunks (backward 10 n (dv + 1): an update of S,
// one of R, and three products with them) and C / 2 pairs of the quadratic form inside.
#include "ops/cpu/chunk_walk.h"

namespace kata::cpu {

namespace {

template <class T>
class ForwardPass {
 public:
  ForwardPass(const LinearAttentionForward<T>& call, const LinearAttention& settings,
              const AttentionSize& size)
      : call_(call), walk_(call.scratch, settings, size) {}

  void run() const {
    const ChunkPlan& plan = walk_.plan;
    const int64_t state_size = plan.features * plan.columns;
    for (int64_t first = 0; first < plan.all_pairs; first += plan.pairs) {
      const int64_t count = std::min(plan.pairs, plan.all_pairs - first);
      if (call_.state_in != nullptr)
        std::copy_n(call_.state_in + first * state_size, count * state_size, walk_.states());
      else
        std::fill_n(walk_.states(), count * state_size, T(0));
      for (int64_t c = 0; c < plan.chunks; c += plan.round)
        one_round(first, count, c, std::min(plan.chunks, c + plan.round));
      if (call_.state_out != nullptr)
        std::copy_n(walk_.states(), count * state_size, call_.state_out + first * state_size);
    }
  }

 private:
  void one_round(int64_t first, int64_t count, int64_t begin, int64_t end) const {
    walk_.for_each_block(first, count,
                         [&](const ChunkPair& pair, int64_t j) { between_chunks(pair, j, begin, end); });
    const int64_t group = walk_.size.group(), slots = end - begin;
    parallel_for(count * group * slots, [&](int64_t unit) {
      const ChunkPair pair = walk_.pair(first, unit / slots / group);
      inside_chunk(pair, unit / slots % group, begin + unit % slots, unit % slots);
    });
  }

  void between_chunks(const ChunkPair& pair, int64_t j, int64_t begin, int64_t end) const {
    const ChunkScratch<T> scratch = walk_.thread_scratch();
    const ChunkPlan& plan = walk_.plan;
    const int64_t group = walk_.size.group();
    for (int64_t c = begin; c < end; ++c) {
      const ChunkSpan span = walk_.span(c);
      const ChunkDecay<T> decay = walk_.decay(scratch, call_.decay, pair, span);
      const bool empty = c == 0 && call_.state_in == nullptr;
      for (int64_t i = 0; i < group; ++i) {
        T* out = walk_.part(pair, j, c - begin) + i * plan.chunk * plan.columns;
        if (empty) {
          std::fill_n(out, span.count() * plan.columns, T(0));
          continue;
        }
        walk_.load_rows(scratch, head_rows(call_.q, pair.b, pair.kv * group + i), span);
        walk_.read(out, plan.columns, pair, j, scratch, span);
        scale_rows(out, decay.read, span.count(), plan.columns);
      }
      if (c + 1 == plan.chunks && call_.state_out == nullptr) continue;
      walk_.load_rows(scratch, head_rows(call_.k, pair.b, pair.kv), span);
      walk_.load_values(scratch, head_rows(call_.v, pair.b, pair.kv), span);
      scale_rows(scratch.x, decay.write, span.count(), plan.columns);
      walk_.update(pair, j, scratch, span, decay.total);
    }
  }

  // Query head i of the pair: the sum of the parts, plus the scores inside the chunk, then the read.
  void inside_chunk(const ChunkPair& pair, int64_t i, int64_t c, int64_t slot) const {
    const ChunkScratch<T> scratch = walk_.thread_scratch();
    const int64_t width = walk_.size.value_width, h = pair.kv * walk_.size.group() + i;
    const bool normalised = call_.mass != nullptr;
    const ChunkSpan span = walk_.span(c);
    const Rows<T> o = head_rows(call_.o, pair.b, h);
    const HeadDecay<T> decay(call_.decay, pair.b, pair.kv);
    for (int64_t begin = span.begin; begin < span.end; begin += query_tile) {
      const int64_t end = std::min(begin + query_tile, span.end);
      for (int64_t t = begin; t < end; ++t) {
        const T mass = sum_parts(o.at(t), pair, slot, i * walk_.plan.chunk + t - span.begin);
        if (normalised) scratch.mass[t - begin] = mass;
      }
      scratch.tile.forward(o, normalised ? scratch.mass : nullptr, head_rows(call_.q, pair.b, h),
                           head_rows(call_.k, pair.b, pair.kv), head_rows(call_.v, pair.b, pair.kv),
                           {begin, end, std::max(span.begin, decay.first_seen(begin))}, decay);
      if (!normalised) continue;
      for (int64_t t = begin; t < end; ++t) {
        call_.mass[(pair.b * walk_.size.tokens + t) * walk_.size.heads + h] = scratch.mass[t - begin];
        normalise_row(o.at(t), scratch.mass[t - begin], width);
      }
    }
  }

  // o = the sum of the blocks' parts; returns their mass.
  T sum_parts(T* o, const ChunkPair& pair, int64_t slot, int64_t row) const {
    const int64_t width = walk_.size.value_width, columns = walk_.plan.columns;
    T mass = 0;
    std::fill_n(o, width, T(0));
    for (int64_t j = 0; j < walk_.plan.blocks; ++j) {
      const T* part = walk_.part(pair, j, slot) + row * columns;
#pragma omp simd
      for (int64_t e = 0; e < width; ++e) o[e] += part[e];
      if (columns > width) mass += part[width];
    }
    return mass;
  }

  LinearAttentionForward<T> call_;
  ChunkWalk<T> walk_;
};

template <class T>
class BackwardPass {
 public:
  BackwardPass(const LinearAttentionBackward<T>& call, const LinearAttention& settings,
               const AttentionSize& size)
      : call_(call), walk_(call.scratch, settings, size) {}

  void run() const {
    const ChunkPlan& plan = walk_.plan;
    const int64_t state_size = plan.features * plan.columns;
    for (int64_t first = 0; first < plan.all_pairs; first += plan.pairs) {
      const int64_t count = std::min(plan.pairs, plan.all_pairs - first);
      std::fill_n(walk_.states(), count * state_size, T(0));
      for (int64_t c = 0; c < plan.chunks; c += plan.round)
        ascending_round(first, count, c, std::min(plan.chunks, c + plan.round));
      std::fill_n(walk_.states(), count * state_size, T(0));
      for (int64_t c = (plan.chunks - 1) / plan.round * plan.round; c >= 0; c -= plan.round)
        descending_round(first, count, c, std::min(plan.chunks, c + plan.round));
    }
    finish_decay_gradients(call_, walk_.size);
  }

 private:
  // dq, and the parts of dk and dv that stay inside a chunk.
  void ascending_round(int64_t first, int64_t count, int64_t begin, int64_t end) const {
    walk_.for_each_block(first, count,
                         [&](const ChunkPair& pair, int64_t j) { query_parts(pair, j, begin, end); });
    parallel_for(count * (end - begin), [&](int64_t unit) {
      const int64_t slot = unit % (end - begin);
      inside_chunk(walk_.pair(first, unit / (end - begin)), begin + slot, slot);
    });
  }
  // The parts of dk and dv that come from later chunks.
  void descending_round(int64_t first, int64_t count, int64_t begin, int64_t end) const {
    walk_.for_each_block(first, count,
                         [&](const ChunkPair& pair, int64_t j) { key_parts(pair, j, begin, end); });
    parallel_for(count * (end - begin), [&](int64_t unit) {
      const int64_t slot = unit % (end - begin);
      add_key_parts(walk_.pair(first, unit / (end - begin)), begin + slot, slot);
    });
  }

  void load_gradients(const ChunkScratch<T>& scratch, const ChunkPair& pair, int64_t h, int64_t begin,
                      int64_t end) const {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t at = (pair.b * walk_.size.tokens + t) * walk_.size.heads + h;
      read_gradient_row(scratch.x + (t - begin) * walk_.plan.columns, call_.d_o.at(pair.b, t, h),
                        call_.o.at(pair.b, t, h), call_.mass == nullptr ? nullptr : call_.mass + at,
                        walk_.size.value_width);
    }
  }

  void query_parts(const ChunkPair& pair, int64_t j, int64_t begin, int64_t end) const {
    const ChunkScratch<T> scratch = walk_.thread_scratch();
    const int64_t group = walk_.size.group();
    for (int64_t c = begin; c < end; ++c) {
      const ChunkSpan span = walk_.span(c);
      const ChunkDecay<T> decay = walk_.decay(scratch, call_.decay, pair, span);
      for (int64_t i = 0; i < group; ++i) {
        const int64_t h = pair.kv * group + i;
        T* dut = walk_.part(pair, j, c - begin) + i * walk_.size.width * walk_.plan.chunk;
        load_gradients(scratch, pair, h, span.begin, span.end);
        scale_rows(scratch.x, decay.read, span.count(), walk_.plan.columns);
        walk_.load_rows(scratch, head_rows(call_.q, pair.b, h), span);
        walk_.read_backward(dut, pair, j, scratch, span);
      }
      if (c + 1 == walk_.plan.chunks) continue;
      walk_.load_rows(scratch, head_rows(call_.k, pair.b, pair.kv), span);
      walk_.load_values(scratch, head_rows(call_.v, pair.b, pair.kv), span);
      scale_rows(scratch.x, decay.write, span.count(), walk_.plan.columns);
      walk_.update(pair, j, scratch, span, decay.total);
    }
  }

  void inside_chunk(const ChunkPair& pair, int64_t c, int64_t slot) const {
    const ChunkScratch<T> scratch = walk_.thread_scratch();
    const ChunkSpan span = walk_.span(c);
    const int64_t group = walk_.size.group(), width = walk_.size.width;
    const Rows<T> dk = head_rows(call_.dk, pair.b, pair.kv), dv = head_rows(call_.dv, pair.b, pair.kv);
    const HeadDecay<T> decay(call_.decay, pair.b, pair.kv);
    zero_rows(dk, span.begin, span.end, width);
    zero_rows(dv, span.begin, span.end, walk_.size.value_width);
    for (int64_t i = 0; i < group; ++i) {
      const int64_t h = pair.kv * group + i;
      const Rows<T> dq = head_rows(call_.dq, pair.b, h);
      const Rows<const T> q = head_rows(call_.q, pair.b, h);
      zero_rows(dq, span.begin, span.end, width);
      for (int64_t begin = span.begin; begin < span.end; begin += query_tile) {
        const int64_t end = std::min(begin + query_tile, span.end);
        load_gradients(scratch, pair, h, begin, end);
        scratch.tile.backward(dq, dk, dv, q, head_rows(call_.k, pair.b, pair.kv),
                              head_rows(call_.v, pair.b, pair.kv), {scratch.x, walk_.plan.columns},
                              call_.mass != nullptr,
                              {begin, end, std::max(span.begin, decay.first_seen(begin))}, decay);
      }
      walk_.add_transposed_parts(dq, pair, slot, i * width * walk_.plan.chunk, span);
      query_rows_backward(dq, q, span.begin, span.end, decay_gradients(call_, walk_.size, pair.b, h),
                          walk_.map, scratch.row);
    }
  }

  void key_parts(const ChunkPair& pair, int64_t j, int64_t begin, int64_t end) const {
    const ChunkScratch<T> scratch = walk_.thread_scratch();
    const int64_t group = walk_.size.group();
    for (int64_t c = end - 1; c >= begin; --c) {
      const ChunkSpan span = walk_.span(c);
      const ChunkDecay<T> decay = walk_.decay(scratch, call_.decay, pair, span);
      T *dut = walk_.part(pair, j, c - begin), *dv = dut + walk_.size.width * walk_.plan.chunk;
      walk_.load_rows(scratch, head_rows(call_.k, pair.b, pair.kv), span);
      walk_.load_values(scratch, head_rows(call_.v, pair.b, pair.kv), span);
      scale_rows(scratch.x, decay.write, span.count(), walk_.plan.columns);
      walk_.read(dv, walk_.size.value_width, pair, j, scratch, span);
      scale_rows(dv, decay.write, span.count(), walk_.size.value_width);
      walk_.read_backward(dut, pair, j, scratch, span);
      if (c == 0) continue;
      for (int64_t h = pair.kv * group; h < (pair.kv + 1) * group; ++h) {
        load_gradients(scratch, pair, h, span.begin, span.end);
        scale_rows(scratch.x, decay.read, span.count(), walk_.plan.columns);
        walk_.load_rows(scratch, head_rows(call_.q, pair.b, h), span);
        walk_.update(pair, j, scratch, span, h == pair.kv * group ? decay.total : T(1));
      }
    }
  }

  void add_key_parts(const ChunkPair& pair, int64_t c, int64_t slot) const {
    const ChunkScratch<T> scratch = walk_.thread_scratch();
    const ChunkSpan span = walk_.span(c);
    const int64_t width = walk_.size.value_width, offset = walk_.size.width * walk_.plan.chunk;
    const Rows<T> dk = head_rows(call_.dk, pair.b, pair.kv), dv = head_rows(call_.dv, pair.b, pair.kv);
    for (int64_t j = 0; j < walk_.plan.blocks; ++j)
      for (int64_t t = 0; t < span.count(); ++t) {
        T* row = dv.at(span.begin + t);
        const T* part = walk_.part(pair, j, slot) + offset + t * width;
#pragma omp simd
        for (int64_t e = 0; e < width; ++e) row[e] += part[e];
      }
    walk_.add_transposed_parts(dk, pair, slot, 0, span);
    key_rows_backward(dk, head_rows(call_.k, pair.b, pair.kv), span.begin, span.end,
                      decay_gradients(call_, walk_.size, pair.b, pair.kv * walk_.size.group()), walk_.map,
                      scratch.row);
  }

  LinearAttentionBackward<T> call_;
  ChunkWalk<T> walk_;
};

}  // namespace

int64_t linear_attention_chunked_scratch(bool, const LinearAttention& settings, const AttentionSize& size) {
  return ChunkWalk<float>(nullptr, settings, size).used();
}

template <class T>
void linear_attention_chunked_forward(const LinearAttentionForward<T>& call, const LinearAttention& settings,
                                      const AttentionSize& size) {
  ForwardPass<T>(call, settings, size).run();
}

template <class T>
void linear_attention_chunked_backward(const LinearAttentionBackward<T>& call,
                                       const LinearAttention& settings, const AttentionSize& size) {
  BackwardPass<T>(call, settings, size).run();
}

#define KATA_INSTANTIATE(T)                                                                        \
  template void linear_attention_chunked_forward<T>(const LinearAttentionForward<T>&,              \
                                                    const LinearAttention&, const AttentionSize&); \
  template void linear_attention_chunked_backward<T>(const LinearAttentionBackward<T>&,            \
                                                     const LinearAttention&, const AttentionSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
