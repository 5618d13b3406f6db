// Products of the features of a chunk with a state, built in steps so that no chunk's features exist as a
// whole.
#pragma once

#include "ops/cpu/feature_block.h"
#include "ops/cpu/gemm.h"

namespace kata::cpu {

template <class T>
struct ChunkState {
  static constexpr int64_t small_product = 1000000;  // m n k, as in ops/cpu/causal_tiles.h

  // Features that are built at a time, of `block` in all.
  static int64_t step_of(int64_t block, int64_t chunk, int64_t columns) {
    return ceil_div(block, ceil_div(block, std::max<int64_t>(16, small_product / (chunk * columns))));
  }

  FeatureMap map;
  int64_t chunk;    // stride of ut, dut and f: the most tokens of a chunk
  int64_t columns;  // of the state
  int64_t step;
  T* f;   // scratch [step][chunk]
  T* xt;  // scratch [columns][chunk]

  // Below: state points at the row of feature `begin`, ut [width][chunk] are the m rows of sqrt(sigma) *
  // lifted q or k, transposed (load), and only features [begin, end) take part.

  // lifted: scratch [chunk][width]
  void load(T* ut, const Rows<const T>& x, int64_t m, T* lifted) const {
    transpose_rows(ut, chunk, lift_rows(lifted, x, m, map), m, map.width,
                   static_cast<T>(std::sqrt(map.sigma())));
  }
  // state = f^T x + keep state; x [m, columns]
  void update(T* state, T keep, const T* ut, const T* x, int64_t m, int64_t begin, int64_t end) const {
    for_each_step(begin, end, [&](int64_t p, int64_t stop) {
      gemm(Op::none, Op::none, stop - p, columns, m, T(1), chunk_features(f, ut, chunk, m, map, p, stop),
           chunk, x, columns, keep, state + (p - begin) * columns, columns);
    });
  }
  // out [m, n] = f state, the first n columns
  void read(T* out, int64_t n, const T* state, const T* ut, int64_t m, int64_t begin, int64_t end) const {
    for_each_step(begin, end, [&](int64_t p, int64_t stop) {
      gemm(Op::transpose, Op::none, m, n, stop - p, T(1), chunk_features(f, ut, chunk, m, map, p, stop),
           chunk, state + (p - begin) * columns, columns, p == begin ? T(0) : T(1), out, n);
    });
  }
  // dut [width][chunk] += what df = x state^T passes back; x [m, columns]
  void read_backward(T* dut, const T* x, const T* state, const T* ut, int64_t m, int64_t begin,
                     int64_t end) const {
    transpose_rows(xt, chunk, {x, columns}, m, columns, T(1));
    for_each_step(begin, end, [&](int64_t p, int64_t stop) {
      gemm(Op::none, Op::none, stop - p, m, columns, T(1), state + (p - begin) * columns, columns, xt, chunk,
           T(0), f, chunk);
      chunk_features_backward(dut, f, ut, chunk, m, map, p, stop);
    });
  }
  // rows of x += sqrt(sigma) dut^T
  void add_transposed(const Rows<T>& x, const T* dut, int64_t m) const {
    const T scale = static_cast<T>(std::sqrt(map.sigma()));
    for (int64_t t = 0; t < m; ++t) {
      T* row = x.at(t);
      for (int64_t i = 0; i < map.width; ++i) row[i] += scale * dut[i * chunk + t];
    }
  }

 private:
  template <class Step>
  void for_each_step(int64_t begin, int64_t end, Step&& body) const {
    for (int64_t p = begin; p < end; p += step) body(p, std::min(p + step, end));
  }
};

}  // namespace kata::cpu
