// The walk of a state over chunks, shared by the forward and the backward pass of the chunked form.
//
// Work goes in rounds of some chunks of some (batch row, key head) pairs. In the first phase of a round every
// (pair, block of features) walks the chunks in order with its rows of the state and leaves its part of each
// chunk's result in scratch. In the second phase every chunk sums those parts in the order of the blocks and
// adds what happens inside the chunk. Both cuts depend on the shape alone; splitting features keeps the
// threads busy when there is one head only, without doing any product twice.
#pragma once

#include "ops/cpu/chunk_state.h"
#include "ops/cpu/score.h"

namespace kata::cpu {

// How a call is cut; every number follows from the shape.
struct ChunkPlan {
  ChunkPlan(const LinearAttention& settings, const AttentionSize& size) {
    chunk = std::min(settings.chunk, std::max<int64_t>(size.tokens, 1));
    chunks = ceil_div(size.tokens, chunk);
    columns = state_columns(settings.read, size.value_width);
    features = settings.map.features();
    all_pairs = size.batch * size.kv_heads;
    // Few pairs are cut into 4 units. Each unit transposes q and k again: below 128 features that costs more
    // than it gains.
    const int64_t wanted = 4 / std::max<int64_t>(all_pairs, 1);
    block = ceil_div(features, std::max<int64_t>(1, std::min(wanted, features / 128)));
    blocks = ceil_div(features, block);
    step = ChunkState<float>::step_of(block, chunk, columns);
    pairs = std::min<int64_t>(all_pairs, 16);
    round = std::min<int64_t>(chunks, 16);
  }

  int64_t chunk, chunks;     // tokens, count
  int64_t columns;           // of the state: dv, and the mass
  int64_t features;          // n
  int64_t block, blocks;     // features in a unit of work, count
  int64_t step;              // features built at a time
  int64_t all_pairs, pairs;  // (batch row, key head): all, and at a time
  int64_t round;             // chunks at a time
};

// Scratch of one thread.
template <class T>
struct ChunkScratch {
  ChunkScratch(T* base, const ChunkPlan& plan, const FeatureMap& map, int64_t value_width)
      : slices(base), tile(slices, map, value_width, plan.chunk) {
    ut = slices.take(plan.chunk * map.width);
    lifted = slices.take(has_lift(map) ? plan.chunk * map.width : 0);
    f = slices.take(plan.chunk * plan.step);
    x = slices.take(std::max(plan.chunk, query_tile) * plan.columns);
    xt = slices.take(plan.columns * plan.chunk);
    mass = slices.take(query_tile);
    read_decay = slices.take(plan.chunk);
    write_decay = slices.take(plan.chunk);
    row = slices.take(map.width);
  }
  Slices<T> slices;
  ScoreTile<T> tile;
  T* ut;                        // [width][chunk]: sqrt(sigma) * lifted q or k of a chunk
  T* lifted;                    // [chunk][width]
  T* f;                         // [step][chunk]: features or their gradient
  T *x, *xt;                    // [chunk][columns] and transposed: [V, 1] or [do / D, -<o, do> / D]
  T* mass;                      // [query_tile]
  T *read_decay, *write_decay;  // [chunk]
  T* row;                       // [width]
};

struct ChunkPair {
  int64_t index, b, kv;  // place in the round, batch row, key head
};
struct ChunkSpan {
  int64_t begin, end;  // tokens
  int64_t count() const { return end - begin; }
};

template <class T>
class ChunkWalk {
 public:
  ChunkWalk(T* scratch, const LinearAttention& settings, const AttentionSize& size)
      : plan(settings, size), map(settings.map), size(size) {
    Slices<T> slices(scratch);
    state_ = slices.take(plan.pairs * plan.features * plan.columns);
    // Forward: [columns] a token and query head. Backward: dq of [width] likewise; dk and dv a token.
    part_ = plan.chunk *
            std::max(size.group() * std::max(plan.columns, size.width), size.width + size.value_width);
    partials_ = slices.take(plan.pairs * plan.blocks * plan.round * part_);
    thread_stride_ = ChunkScratch<T>(nullptr, plan, map, size.value_width).slices.used();
    threads_ = slices.take(thread_count() * thread_stride_);
    used_ = slices.used();
  }
  int64_t used() const { return used_; }

  ChunkScratch<T> thread_scratch() const {
    return {threads_ + thread_index() * thread_stride_, plan, map, size.value_width};
  }
  ChunkPair pair(int64_t first, int64_t index) const {
    return {index, (first + index) / size.kv_heads, (first + index) % size.kv_heads};
  }
  ChunkSpan span(int64_t c) const { return {c * plan.chunk, std::min(size.tokens, (c + 1) * plan.chunk)}; }
  T* states() const { return state_; }
  // What block j leaves for the chunk at place `slot` of the round.
  T* part(const ChunkPair& pair, int64_t j, int64_t slot) const {
    return partials_ + ((pair.index * plan.blocks + j) * plan.round + slot) * part_;
  }

  // phase(pair, j) for every block of features of the pairs [first, first + count)
  template <class Phase>
  void for_each_block(int64_t first, int64_t count, Phase&& phase) const {
    parallel_for(count * plan.blocks,
                 [&](int64_t unit) { phase(pair(first, unit / plan.blocks), unit % plan.blocks); });
  }

  // scratch.ut = the chunk's rows of q or k
  void load_rows(const ChunkScratch<T>& scratch, const Rows<const T>& x, const ChunkSpan& span) const {
    products(scratch).load(scratch.ut, x.from(span.begin), span.count(), scratch.lifted);
  }
  // scratch.x = [V, 1] of a chunk
  void load_values(const ChunkScratch<T>& scratch, const Rows<const T>& values, const ChunkSpan& span) const {
    for (int64_t t = span.begin; t < span.end; ++t) {
      T* row = scratch.x + (t - span.begin) * plan.columns;
      std::copy_n(values.at(t), size.value_width, row);
      if (plan.columns > size.value_width) row[size.value_width] = 1;
    }
  }

  ChunkDecay<T> decay(const ChunkScratch<T>& scratch, const LogDecay<T>& log, const ChunkPair& pair,
                      const ChunkSpan& span) const {
    return ChunkDecay<T>::of(HeadDecay<T>(log, pair.b, pair.kv), span.begin, span.end, scratch.read_decay,
                             scratch.write_decay);
  }

  // state rows of block j = f^T x + keep state, f the features of the loaded rows
  void update(const ChunkPair& pair, int64_t j, const ChunkScratch<T>& scratch, const ChunkSpan& span,
              T keep) const {
    products(scratch).update(state(pair, j), keep, scratch.ut, scratch.x, span.count(), begin(j), end(j));
  }
  // out [tokens, n] = f state, the first n columns
  void read(T* out, int64_t n, const ChunkPair& pair, int64_t j, const ChunkScratch<T>& scratch,
            const ChunkSpan& span) const {
    products(scratch).read(out, n, state(pair, j), scratch.ut, span.count(), begin(j), end(j));
  }
  // dut [width, chunk] = what df = x state^T passes back to the loaded rows
  void read_backward(T* dut, const ChunkPair& pair, int64_t j, const ChunkScratch<T>& scratch,
                     const ChunkSpan& span) const {
    std::fill_n(dut, size.width * plan.chunk, T(0));
    products(scratch).read_backward(dut, scratch.x, state(pair, j), scratch.ut, span.count(), begin(j),
                                    end(j));
  }
  // rows of x += sqrt(sigma) * the sum over blocks of the transposed parts at `offset`
  void add_transposed_parts(const Rows<T>& x, const ChunkPair& pair, int64_t slot, int64_t offset,
                            const ChunkSpan& span) const {
    for (int64_t j = 0; j < plan.blocks; ++j)
      ChunkState<T>{map, plan.chunk, plan.columns, plan.step, nullptr, nullptr}.add_transposed(
          x.from(span.begin), part(pair, j, slot) + offset, span.count());
  }

  const ChunkPlan plan;
  const FeatureMap map;
  const AttentionSize size;

 private:
  ChunkState<T> products(const ChunkScratch<T>& scratch) const {
    return {map, plan.chunk, plan.columns, plan.step, scratch.f, scratch.xt};
  }
  int64_t begin(int64_t j) const { return j * plan.block; }
  int64_t end(int64_t j) const { return std::min(plan.features, (j + 1) * plan.block); }
  T* state(const ChunkPair& pair, int64_t j) const {
    return state_ + (pair.index * plan.features + begin(j)) * plan.columns;
  }

  T *state_, *partials_, *threads_;
  int64_t part_, thread_stride_, used_;
};

}  // namespace kata::cpu
