// Next-token loss in tiles of labelled rows: gather, logits by cuBLASLt, one block a row for the loss and, in
// place, the gradient of the logits, then the two products back.
//
// Floor: three products of 2 labelled vocab width operations each (one in the forward), and the logits of a
// tile written once, read twice and written again.
#include "kernels/common/blas.h"
#include "kernels/common/reduce.cuh"
#include "kernels/common/rows.cuh"
#include "ops/cross_entropy.h"

namespace kata::cuda {

namespace {

constexpr int64_t tile_elements = int64_t{1} << 28;  // logits held at once
constexpr int scan_threads = 1024, row_threads = 512, copy_threads = 128;

// labelled = the labelled rows in order, then -1; labelled[rows] = how many. One block. Also the results of
// the other rows, or NaN for all where more are labelled than the bound says.
__global__ void find_labelled_kernel(int32_t* labelled, float* losses, int32_t* predictions,
                                     const int32_t* targets, int64_t bound, int64_t rows) {
  __shared__ int32_t counts[scan_threads];
  const int thread = static_cast<int>(threadIdx.x);
  int32_t found = 0;
  for (int64_t first = 0; first < rows; first += scan_threads) {
    const int64_t r = first + thread;
    const int32_t mine = r < rows && targets[r] >= 0 ? 1 : 0;
    counts[thread] = mine;
    running_sum<scan_threads>(counts);
    if (mine) {
      labelled[found + counts[thread] - 1] = static_cast<int32_t>(r);
    } else if (r < rows) {
      losses[r] = 0;
      if (predictions != nullptr) predictions[r] = -1;
    }
    found += counts[scan_threads - 1];
    __syncthreads();
  }
  for (int64_t r = found + thread; r < rows; r += scan_threads) labelled[r] = -1;
  if (thread == 0) labelled[rows] = found;
  if (found > bound)
    for (int64_t r = thread; r < rows; r += scan_threads) losses[r] = __int_as_float(0x7FFFFFFF);
}

// to[i] = from[labelled[i]], zero where that is -1; or the other way round.
template <class T, int N>
__global__ void gather_kernel(T* to, const T* from, const int32_t* labelled, int64_t width) {
  const int64_t row = labelled[blockIdx.x];
  for (int64_t c = threadIdx.x * N; c < width; c += copy_threads * N) {
    float v[N] = {};
    if (row >= 0) load<N>(v, from + row * width + c);
    store<N>(to + blockIdx.x * width + c, v);
  }
}
template <class T, int N>
__global__ void scatter_kernel(T* to, const T* from, const int32_t* labelled, int64_t width) {
  const int64_t row = labelled[blockIdx.x];
  if (row < 0) return;
  for (int64_t c = threadIdx.x * N; c < width; c += copy_threads * N) {
    float v[N];
    load<N>(v, from + blockIdx.x * width + c);
    store<N>(to + row * width + c, v);
  }
}

// The largest logit and where it is, and the sum of exp(z - top).
struct RowSum {
  float top;
  float sum;
  int32_t at;
};
// In either order the same: the lower id wins among equals. A NaN stays in the sum.
__device__ __forceinline__ RowSum merge(const RowSum& a, const RowSum& b) {
  const bool first = a.top > b.top || (a.top == b.top && a.at < b.at);
  const float top = first ? a.top : b.top;
  const float sa = a.top == -INFINITY && a.sum == 0 ? 0 : a.sum * __expf(a.top - top);
  const float sb = b.top == -INFINITY && b.sum == 0 ? 0 : b.sum * __expf(b.top - top);
  return {top, sa + sb, first ? a.at : b.at};
}

template <class T, int N>
__global__ void rows_kernel(float* losses, int32_t* predictions, T* logits, const int32_t* labelled,
                            const int32_t* targets, float scale, bool gradient, bool overflow_check,
                            int64_t bound, const int32_t* count, int64_t vocab) {
  __shared__ RowSum sums[row_threads];
  const int64_t row = labelled[blockIdx.x];
  T* z = logits + blockIdx.x * vocab;
  if (row < 0) {  // the gathered row is zero: its gradient must be, too
    for (int64_t c = threadIdx.x * N; gradient && c < vocab; c += row_threads * N) {
      const float zero[N] = {};
      store<N>(z + c, zero);
    }
    return;
  }
  RowSum own = {-INFINITY, 0, INT32_MAX};
  for (int64_t c = threadIdx.x * N; c < vocab; c += row_threads * N) {
    float v[N];
    load<N>(v, z + c);
    float top = own.top;
    int32_t at = own.at;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (v[i] > top) {
        top = v[i];
        at = static_cast<int32_t>(c) + i;
      }
    float sum = own.sum == 0 ? 0 : own.sum * __expf(own.top - top);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += v[i] == -INFINITY ? 0 : __expf(v[i] - top);
    own = {top, sum, at};
  }
  sums[threadIdx.x] = own;
  __syncthreads();
  for (int half = row_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] = merge(sums[threadIdx.x], sums[threadIdx.x + half]);
    __syncthreads();
  }
  const RowSum all = sums[0];
  const bool known = targets[row] < vocab;  // else the caller is at fault, and the loss shows it
  const int64_t target = known ? targets[row] : 0;
  const float target_logit = to_float(z[target]);
  __syncthreads();  // before the logits go
  if (threadIdx.x == 0) {
    const bool unusable = !known || (overflow_check && *count > bound);
    losses[row] = unusable ? __int_as_float(0x7FFFFFFF) : logf(all.sum) + (all.top - target_logit);
    if (predictions != nullptr) predictions[row] = all.at == INT32_MAX ? 0 : all.at;
  }
  if (!gradient) return;
  const float factor = scale / all.sum;
  for (int64_t c = threadIdx.x * N; c < vocab; c += row_threads * N) {
    float v[N];
    load<N>(v, z + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      v[i] = factor * __expf(v[i] - all.top);
      if (c + i == target) v[i] -= scale;
    }
    store<N>(z + c, v);
  }
}

template <class T>
struct Tile {
  const Gpu& gpu;
  int64_t rows;
  const int32_t* labelled;
  const CrossEntropyScratch<T>& scratch;
  const CrossEntropySize& size;
  bool width_packs, vocab_packs;

  void gather(const T* x) const {
    with_pack<T>(width_packs, [&]<int N>() {
      gather_kernel<T, N><<<grid(rows), copy_threads, 0, gpu.stream()>>>(scratch.x, x, labelled, size.width);
    });
    check_launch("cross_entropy gather");
  }
  void scatter(T* dx) const {
    with_pack<T>(width_packs, [&]<int N>() {
      scatter_kernel<T, N>
          <<<grid(rows), copy_threads, 0, gpu.stream()>>>(dx, scratch.dx, labelled, size.width);
    });
    check_launch("cross_entropy scatter");
  }
  void logits(const T* table) const {
    const Product p = {rows,       size.vocab, size.width, false,        true,        size.width,
                       size.width, size.vocab, size.vocab, blas_type<T>, blas_type<T>};
    product(gpu, p, scratch.x, table, nullptr, scratch.logits);
  }
  void gradients(float* dtable, const T* table) const {
    const Product back = {rows,       size.width, size.vocab, false,        false,       size.vocab,
                          size.width, size.width, size.width, blas_type<T>, blas_type<T>};
    product(gpu, back, scratch.logits, table, nullptr, scratch.dx);
    const Product outer = {size.vocab, size.width, rows,       true,         false,     size.vocab,
                           size.width, size.width, size.width, blas_type<T>, CUDA_R_32F};
    product(gpu, outer, scratch.logits, scratch.x, dtable, dtable);
  }
};

}  // namespace

int64_t cross_entropy_tile_rows(int64_t labelled_bound, const CrossEntropySize& size) {
  const int64_t most = std::max<int64_t>(128, tile_elements / size.vocab),
                rows = std::max<int64_t>(labelled_bound, 1);
  const int64_t tiles = ceil_div(rows, most);
  return std::min(rows, ceil_div(ceil_div(rows, tiles), int64_t{128}) * 128);  // tiles of equal size
}

template <class T>
void cross_entropy(const Gpu& gpu, Wide<T>* losses, int32_t* predictions, T* dx, Wide<T>* dtable, const T* x,
                   const T* table, const int32_t* targets, float scale, int64_t labelled_bound,
                   const CrossEntropyScratch<T>& scratch, const CrossEntropySize& size) {
  if (size.rows == 0) return;
  const bool gradient = dx != nullptr;
  find_labelled_kernel<<<1, scan_threads, 0, gpu.stream()>>>(scratch.labelled, losses, predictions, targets,
                                                             labelled_bound, size.rows);
  check_launch("cross_entropy labelled rows");
  if (gradient) gpu.zero(dx, static_cast<size_t>(size.rows * size.width) * sizeof(T));
  const int64_t tile_rows = cross_entropy_tile_rows(labelled_bound, size);
  for (int64_t begin = 0; begin < labelled_bound; begin += tile_rows) {
    const Tile<T> tile = {gpu,
                          std::min(tile_rows, labelled_bound - begin),
                          scratch.labelled + begin,
                          scratch,
                          size,
                          packs<T>({x, dx, scratch.x, scratch.dx}, {size.width}),
                          packs<T>({scratch.logits}, {size.vocab})};
    tile.gather(x);
    tile.logits(table);
    with_pack<T>(tile.vocab_packs, [&]<int N>() {
      rows_kernel<T, N><<<grid(tile.rows), row_threads, 0, gpu.stream()>>>(
          losses, predictions, scratch.logits, tile.labelled, targets, scale, gradient,
          labelled_bound < size.rows, labelled_bound, scratch.labelled + size.rows, size.vocab);
    });
    check_launch("cross_entropy rows");
    if (!gradient) continue;
    tile.gradients(dtable, table);
    tile.scatter(dx);
  }
}

template void cross_entropy<float>(const Gpu&, float*, int32_t*, float*, float*, const float*, const float*,
                                   const int32_t*, float, int64_t, const CrossEntropyScratch<float>&,
                                   const CrossEntropySize&);
template void cross_entropy<bf16>(const Gpu&, float*, int32_t*, bf16*, float*, const bf16*, const bf16*,
                                  const int32_t*, float, int64_t, const CrossEntropyScratch<bf16>&,
                                  const CrossEntropySize&);

}  // namespace kata::cuda
