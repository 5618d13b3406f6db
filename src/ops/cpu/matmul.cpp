#include "ops/matmul.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/gemm.h"

namespace kata::cpu {

namespace {

constexpr int64_t block_rows = 256;       // measured: from here on a single-threaded gemm is at its peak
constexpr int64_t block_columns = 768;    // more columns than this spill the block of results out of the L2
constexpr int64_t wanted_units = 8;       // enough to keep a few threads busy
constexpr double small_product = 2e6;     // multiply-adds that are not worth waking a thread for
constexpr int64_t transposing_rows = 64;  // from here on a transposed copy of w pays
constexpr int64_t few_rows = 4;           // below this a product runs at the speed of reading w
constexpr int64_t weight_rows = 512;      // rows of dw in a block
constexpr int64_t weight_tokens = 512;    // least tokens of one partial sum of dw
constexpr int64_t reduce_block = 16384;   // elements of dw per unit when partial sums are added
constexpr int64_t unpacked =
    1000000;  // m n k up to which OpenBLAS multiplies N N without packing, 10% faster

int64_t round_up(int64_t n, int64_t multiple) {
  return ceil_div(n, multiple) * multiple;
}

// Blocks of a result [rows, columns] whose elements are sums of `depth` products.
struct Blocks {
  int64_t rows, columns;         // of one block
  int64_t row_count, col_count;  // blocks

  Blocks(int64_t m, int64_t n, int64_t depth) : rows(std::min(m, block_rows)), columns(n) {
    columns = round_up(ceil_div(n, ceil_div(n, block_columns)), 16);
    const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(depth);
    if (work > small_product)
      while (ceil_div(m, rows) * ceil_div(n, columns) < wanted_units && (rows > 64 || columns > 128)) {
        if (rows > 64 && rows * 2 >= columns)
          rows = round_up(ceil_div(rows, 2), 16);
        else
          columns = round_up(ceil_div(columns, 2), 16);
      }
    row_count = ceil_div(m, rows);
    col_count = ceil_div(n, columns);
  }
  int64_t count() const { return row_count * col_count; }
};

// body(row begin, rows, column begin, columns) for each block.
template <class Body>
void for_blocks(int64_t m, int64_t n, int64_t depth, Body&& body) {
  if (m == 0) return;
  const Blocks blocks(m, n, depth);
  parallel_for(blocks.count(), [&](int64_t i) {
    const int64_t r = i / blocks.col_count * blocks.rows, c = i % blocks.col_count * blocks.columns;
    body(r, std::min(blocks.rows, m - r), c, std::min(blocks.columns, n - c));
  });
}

// Rows of a product N N with a matrix [depth, columns] that stay below `unpacked`; 0: too few to be worth it.
int64_t unpacked_rows(int64_t columns, int64_t depth) {
  const int64_t rows = unpacked / std::max(columns * depth, int64_t{1});
  return rows >= 8 ? rows / 8 * 8 : 0;
}

// y [rows, columns] = x [rows, depth] w [depth, columns] + beta y, in pieces of rows that need no packing.
template <class T>
void product_by_rows(T* y, int64_t y_stride, const T* x, int64_t x_stride, const T* w, int64_t w_stride,
                     T beta, int64_t rows, int64_t columns, int64_t depth) {
  const int64_t piece = unpacked_rows(columns, depth) > 0 ? unpacked_rows(columns, depth) : rows;
  for (int64_t r = 0; r < rows; r += piece)
    gemm(Op::none, Op::none, std::min(piece, rows - r), columns, depth, T(1), x + r * x_stride, x_stride, w,
         w_stride, beta, y + r * y_stride, y_stride);
}

template <class T>
void transpose(T* out, const T* w, int64_t n, int64_t k) {  // out [k, n], w [n, k]
  constexpr int64_t tile = 16;
  parallel_blocks(k, 4 * tile, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < n; i += tile)
      for (int64_t j = begin; j < end; ++j)
        for (int64_t r = i; r < std::min(i + tile, n); ++r) out[j * n + r] = w[r * k + j];
  });
}

// Partial sums of dw over the tokens: only as many as the blocks of dw's rows leave threads idle.
int64_t weight_pieces(const MatmulSize& s) {
  const int64_t wanted = ceil_div(wanted_units, ceil_div(s.n, weight_rows));
  return std::clamp(s.m / weight_tokens, int64_t{1}, wanted);
}

int64_t weight_block_rows(const MatmulSize& s, int64_t pieces) {
  const double work = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  int64_t blocks = ceil_div(s.n, weight_rows);
  if (work > small_product) blocks = std::max(blocks, std::min(wanted_units / pieces, s.n / 64));
  return round_up(ceil_div(s.n, blocks), 16);
}

// dw += the partial sums, in their order.
template <class T>
void add_partials(T* dw, const T* partial, int64_t pieces, int64_t n) {
  parallel_blocks(n, reduce_block, [&](int64_t begin, int64_t end) {
    for (int64_t p = 0; p < pieces; ++p) {
      const T* sum = partial + p * n;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) dw[j] += sum[j];
    }
  });
}

}  // namespace

bool matmul_transposes(const MatmulSize& s) {
  return s.m >= transposing_rows && unpacked_rows(s.n, s.k) > 0;
}

template <class T>
void matmul_forward(T* y, const T* x, const T* w, const T* residual, int64_t residual_stride, T* transposed,
                    const MatmulSize& s) {
  if (transposed) transpose(transposed, w, s.n, s.k);
  for_blocks(s.m, s.n, s.k, [&](int64_t row, int64_t rows, int64_t col, int64_t columns) {
    T* out = y + row * s.y_stride + col;
    if (residual && residual != y)
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(residual + (row + r) * residual_stride + col, columns, out + r * s.y_stride);
    const T beta = residual ? T(1) : T(0);
    const T *in = x + row * s.x_stride, *weight = w + col * s.k;
    if (s.m <= few_rows) {
      for (int64_t r = 0; r < rows; ++r)
        gemv(columns, s.k, weight, s.k, in + r * s.x_stride, beta, out + r * s.y_stride);
    } else if (transposed) {
      product_by_rows(out, s.y_stride, in, s.x_stride, transposed + col, s.n, beta, rows, columns, s.k);
    } else {
      gemm(Op::none, Op::transpose, rows, columns, s.k, T(1), in, s.x_stride, weight, s.k, beta, out,
           s.y_stride);
    }
  });
}

template <class T>
void matmul_backward_input(T* dx, const T* dy, const T* w, bool accumulate, const MatmulSize& s) {
  for_blocks(s.m, s.k, s.n, [&](int64_t row, int64_t rows, int64_t col, int64_t columns) {
    product_by_rows(dx + row * s.x_stride + col, s.x_stride, dy + row * s.y_stride, s.y_stride, w + col, s.k,
                    accumulate ? T(1) : T(0), rows, columns, s.n);
  });
}

int64_t matmul_partials(const MatmulSize& s) {
  const int64_t pieces = weight_pieces(s);
  return pieces > 1 ? pieces : 0;
}

template <class T>
void matmul_backward_weight(T* dw, const T* dy, const T* x, T* partial, const MatmulSize& s) {
  const int64_t tokens = std::max(round_up(ceil_div(s.m, weight_pieces(s)), 64), int64_t{1});
  const int64_t pieces = ceil_div(s.m, tokens), outputs = weight_block_rows(s, pieces);
  const int64_t blocks = ceil_div(s.n, outputs);
  if (s.m == 0) return;
  parallel_for(pieces * blocks, [&](int64_t i) {
    const int64_t piece = i / blocks, token = piece * tokens, out = i % blocks * outputs;
    T* sum = pieces > 1 ? partial + piece * s.n * s.k : dw;
    gemm(Op::transpose, Op::none, std::min(outputs, s.n - out), s.k, std::min(tokens, s.m - token), T(1),
         dy + token * s.y_stride + out, s.y_stride, x + token * s.x_stride, s.x_stride,
         pieces > 1 ? T(0) : T(1), sum + out * s.k, s.k);
  });
  if (pieces > 1) add_partials(dw, partial, pieces, s.n * s.k);
}

#define KATA_INSTANTIATE(T)                                                                          \
  template void matmul_forward<T>(T*, const T*, const T*, const T*, int64_t, T*, const MatmulSize&); \
  template void matmul_backward_input<T>(T*, const T*, const T*, bool, const MatmulSize&);           \
  template void matmul_backward_weight<T>(T*, const T*, const T*, T*, const MatmulSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(double)
#undef KATA_INSTANTIATE

}  // namespace kata::cpu
