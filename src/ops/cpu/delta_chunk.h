// One (batch row, key head) of the delta rule, chunk by chunk: what the forward and the backward pass share.
#pragma once

#include <cmath>

#include "ops/cpu/chunk_state.h"
#include "ops/cpu/score.h"
#include "ops/delta_attention.h"

namespace kata::cpu {

// How a call is cut; every number follows from the shape.
struct DeltaPlan {
  DeltaPlan(const FeatureMap& map, int64_t chunk_tokens, const AttentionSize& size) {
    chunk = std::min({chunk_tokens, query_tile, std::max<int64_t>(size.tokens, 1)});
    chunks = ceil_div(size.tokens, chunk);
    features = map.features();
    columns = size.value_width;
    step = ChunkState<float>::step_of(features, chunk, columns);
    segment = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(chunks)))));
    segments = ceil_div(chunks, segment);
  }
  int64_t state() const { return features * columns; }  // elements

  int64_t chunk, chunks;      // tokens, count
  int64_t features, columns;  // n, dv
  int64_t step;               // features built at a time
  int64_t segment, segments;  // chunks whose states backward keeps at once, count
};

// Scratch of one thread.
template <class T>
struct DeltaScratch {
  DeltaScratch(T* base, bool backward, const FeatureMap& map, const DeltaPlan& plan,
               const AttentionSize& size)
      : slices(base), tile(slices, map, size.value_width, plan.chunk) {
    const int64_t values = plan.chunk * plan.columns, rows = plan.chunk * map.width;
    state = slices.take(plan.state());
    uk = slices.take(rows);
    uq = slices.take(rows);
    lifted = slices.take(rows);
    f = slices.take(plan.chunk * plan.step);
    xt = slices.take(values);
    a = slices.take(plan.chunk * query_tile);
    u = slices.take(values);
    x = slices.take(values);
    read_decay = slices.take(plan.chunk);
    write_decay = slices.take(plan.chunk);
    row = slices.take(map.width);
    if (!backward) return;
    dut = slices.take(rows);
    dw = slices.take(values);
    kept = slices.take(plan.segments * plan.state());
    states = slices.take(plan.segment * plan.state());
  }

  Slices<T> slices;
  ScoreTile<T> tile;
  T* state;                              // [n, dv]: S; in backward dS after the chunk
  T *uk, *uq;                            // [width][chunk]: k and q of a chunk
  T* lifted;                             // [chunk][width]
  T *f, *xt;                             // of ChunkState
  T* a;                                  // [chunk][query_tile]: scores or their gradients, keys first
  T *u, *x;                              // [chunk, dv]: U; the other factor of a product with a state
  T *read_decay, *write_decay;           // [chunk]
  T* row;                                // [width]
  T *dut = nullptr, *dw = nullptr;       // [width][chunk]; [chunk, dv]
  T *kept = nullptr, *states = nullptr;  // S at the start of every segment; of every chunk of one segment
};

template <class T, class Call>
struct DeltaHead {
  DeltaHead(const Call& c, const FeatureMap& m, const DeltaPlan& p, const AttentionSize& s,
            const DeltaScratch<T>& room, int64_t unit)
      : call(c),
        map(m),
        plan(p),
        size(s),
        scratch(room),
        b(unit / s.kv_heads),
        kv(unit % s.kv_heads),
        decay(c.decay, b, kv),
        products{m, p.chunk, p.columns, p.step, room.f, room.xt},
        k(head_rows(c.k, b, kv)),
        v(head_rows(c.v, b, kv)) {}

  struct Chunk {
    TileRange range;
    int64_t tokens;
    ChunkDecay<T> decay;
  };
  Chunk chunk(int64_t c) const {
    const int64_t begin = c * plan.chunk, end = std::min(begin + plan.chunk, size.tokens);
    return {{begin, end, begin},
            end - begin,
            ChunkDecay<T>::of(decay, begin, end, scratch.read_decay, scratch.write_decay)};
  }
  int64_t gate(int64_t t) const { return (b * size.tokens + t) * size.kv_heads + kv; }
  T beta(int64_t t) const { return call.beta[gate(t)]; }
  auto errors(int64_t t) const { return call.errors + gate(t) * plan.columns; }
  int64_t first_head() const { return kv * size.group(); }
  int64_t end_head() const { return first_head() + size.group(); }

  void load_keys(const Chunk& c) const {
    products.load(scratch.uk, k.from(c.range.begin), c.tokens, scratch.lifted);
  }
  void load_queries(const Chunk& c, int64_t h) const {
    products.load(scratch.uq, head_rows(call.q, b, h).from(c.range.begin), c.tokens, scratch.lifted);
  }
  // u = beta E
  void load_u(const Chunk& c) const {
    for (int64_t t = 0; t < c.tokens; ++t) {
      const T* e = errors(c.range.begin + t);
      const T strength = beta(c.range.begin + t);
      T* u = scratch.u + t * plan.columns;
#pragma omp simd
      for (int64_t j = 0; j < plan.columns; ++j) u[j] = strength * e[j];
    }
  }
  // x = factor times the rows of the chunk; factor null: 1
  void load_x(const Chunk& c, const Rows<const T>& rows, const T* factor) const {
    for (int64_t t = 0; t < c.tokens; ++t)
      std::copy_n(rows.at(t), plan.columns, scratch.x + t * plan.columns);
    scale_rows(scratch.x, factor, c.tokens, plan.columns);
  }
  // state = a state + f(K)^T h U; keys and u are loaded
  void write(T* state, const Chunk& c) const {
    load_x(c, {scratch.u, plan.columns}, c.decay.write);
    products.update(state, c.decay.total, scratch.uk, scratch.x, c.tokens, 0, plan.features);
  }
  // out = factor f(rows of ut) state
  void read(T* out, const Chunk& c, const T* ut, const T* state, const T* factor) const {
    products.read(out, plan.columns, state, ut, c.tokens, 0, plan.features);
    scale_rows(out, factor, c.tokens, plan.columns);
  }

  // a[s][t] = G kappa(k_t, k_s) for s < t, else 0
  void key_scores(const Chunk& c) const {
    scratch.tile.matrix(scratch.a, k, k, c.range, decay);
    clear_diagonal(c);
  }
  // a[s][t] = G kappa(q_t, k_s) for s <= t, else 0
  void query_scores(const Chunk& c, int64_t h) const {
    scratch.tile.matrix(scratch.a, head_rows(call.q, b, h), k, c.range, decay);
  }
  void clear_diagonal(const Chunk& c) const {
    for (int64_t s = 0; s < c.tokens; ++s) scratch.a[s * query_tile + s] = 0;
  }

  const Call& call;
  const FeatureMap& map;
  const DeltaPlan& plan;
  const AttentionSize& size;
  const DeltaScratch<T>& scratch;
  int64_t b, kv;
  HeadDecay<T> decay;
  ChunkState<T> products;
  Rows<const T> k, v;
};

}  // namespace kata::cpu
