// Rows of a table. The gradient first sorts the rows by id, in their order, so that a block adds the rows of
// one id in a fixed order and nothing is added atomically.
//
// Floor: memory. Forward reads the rows that occur and writes y; backward reads dy and reads and writes those
// rows.
#include "kernels/common/reduce.cuh"
#include "kernels/common/rows.cuh"
#include "ops/embedding.h"

namespace kata::cuda {

namespace {

constexpr int threads = 128, chunk = 1024;
constexpr int piece = 32;  // sorted rows that a block adds

template <class T, int N>
__global__ void forward_kernel(T* y, const T* table, const int32_t* ids, EmbeddingSize size) {
  const int64_t i = (blockIdx.x * int64_t{threads} + threadIdx.x) * N;
  if (i >= size.rows * size.width) return;
  const int64_t row = i / size.width, id = ids[row];
  float v[N] = {};
  if (id >= 0 && id < size.vocab) load<N>(v, table + id * size.width + i - row * size.width);
  store<N>(y + i, v);
}

// In scratch: how often each id occurs; where its rows begin in `order`, later where they end; the rows by
// id; and for each row how many of its chunk with its id stand before it, negative (-1 - rank) for the last
// of them.
struct Ranks {
  int32_t *counts, *ends, *order, *rank;  // [vocab], [vocab], [rows], [rows]
};
Ranks ranks_of(int32_t* scratch, const EmbeddingSize& size) {
  return {scratch, scratch + size.vocab, scratch + 2 * size.vocab, scratch + 2 * size.vocab + size.rows};
}

__global__ void clear_kernel(int32_t* counts, int64_t vocab) {
  const int64_t i = blockIdx.x * int64_t{chunk} + threadIdx.x;
  if (i < vocab) counts[i] = 0;
}

// A block has a chunk of rows. Whole numbers: the atomic sums do not depend on their order.
__global__ void rank_kernel(Ranks ranks, const int32_t* ids, EmbeddingSize size) {
  __shared__ int32_t own[chunk];
  const int64_t r = blockIdx.x * int64_t{chunk} + threadIdx.x;
  const int32_t id = r < size.rows ? ids[r] : -1;
  own[threadIdx.x] = id;
  __syncthreads();
  if (r >= size.rows || id < 0 || id >= size.vocab) return;
  int32_t before = 0, all = 0;
  for (int i = 0; i < chunk; ++i) {
    const int32_t same = own[i] == id ? 1 : 0;
    all += same;
    before += i < threadIdx.x ? same : 0;
  }
  const bool last = before + 1 == all;
  ranks.rank[r] = last ? -1 - before : before;
  if (last) atomicAdd(ranks.counts + id, all);
}

// One block: ends = the exclusive running sum of counts.
__global__ void begin_kernel(Ranks ranks, int64_t vocab) {
  __shared__ int32_t sums[chunk];
  const int thread = static_cast<int>(threadIdx.x);
  int32_t total = 0;
  for (int64_t first = 0; first < vocab; first += chunk) {
    const int64_t id = first + thread;
    const int32_t count = id < vocab ? ranks.counts[id] : 0;
    sums[thread] = count;
    running_sum<chunk>(sums);
    if (id < vocab) ranks.ends[id] = total + sums[thread] - count;
    total += sums[chunk - 1];
    __syncthreads();
  }
}

// One block walks the chunks: rows go behind those of their id that earlier chunks have placed.
__global__ void order_kernel(Ranks ranks, const int32_t* ids, EmbeddingSize size) {
  for (int64_t first = 0; first < size.rows; first += chunk) {
    const int64_t r = first + threadIdx.x;
    const int32_t id = r < size.rows ? ids[r] : -1;
    const bool known = id >= 0 && id < size.vocab;
    const int32_t rank = known ? ranks.rank[r] : 0, before = rank < 0 ? -1 - rank : rank;
    const int32_t at = known ? ranks.ends[id] + before : 0;
    if (known) ranks.order[at] = static_cast<int32_t>(r);
    __syncthreads();
    if (known && rank < 0) ranks.ends[id] = at + 1;
    __syncthreads();
  }
}

// A run of sorted rows with one id.
struct IdRun {
  int32_t begin, end;
};
__device__ __forceinline__ IdRun run_of(const Ranks& ranks, int32_t id) {
  const int32_t end = ranks.ends[id];
  return {end - ranks.counts[id], end};
}
__device__ __forceinline__ int32_t known_rows(const Ranks& ranks, int64_t vocab) {
  return ranks.ends[vocab - 1];
}

template <int N>
__device__ __forceinline__ void add_to(float* to, const float (&sum)[N]) {
  float old[N];
  load<N>(old, to);
#pragma unroll
  for (int j = 0; j < N; ++j) old[j] += sum[j];
  store<N>(to, old);
}

// Piece blockIdx.x of the sorted rows. partial: [pieces][2][width]: the sum of the run that comes in from the
// piece before, and of the one that begins here and goes on.
template <class T, int N>
__global__ void pieces_kernel(float* dtable, float* partial, const T* dy, const int32_t* ids, Ranks ranks,
                              EmbeddingSize size) {
  const int32_t first = static_cast<int32_t>(blockIdx.x) * piece, all = known_rows(ranks, size.vocab);
  const int32_t last = first + piece < all ? first + piece : all;
  for (int64_t c = threadIdx.x * N; c < size.width; c += threads * N)
    for (int32_t begin = first; begin < last;) {
      const int32_t id = ids[ranks.order[begin]];
      const IdRun run = run_of(ranks, id);
      const int32_t end = run.end < last ? run.end : last;
      float sum[N] = {};
#pragma unroll 4
      for (int32_t i = begin; i < end; ++i) {
        float v[N];
        load<N>(v, dy + int64_t{ranks.order[i]} * size.width + c);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += v[j];
      }
      const bool comes = run.begin<first, goes = run.end> last;
      if (comes || goes)
        store<N>(partial + (blockIdx.x * int64_t{2} + (comes ? 0 : 1)) * size.width + c, sum);
      else
        add_to<N>(dtable + id * size.width + c, sum);
      begin = end;
    }
}

// The run that begins in piece blockIdx.x and goes on: its part there, then those of the pieces after it.
template <int N>
__global__ void long_runs_kernel(float* dtable, const float* partial, const int32_t* ids, Ranks ranks,
                                 EmbeddingSize size) {
  const int32_t first = static_cast<int32_t>(blockIdx.x) * piece, all = known_rows(ranks, size.vocab);
  if (first + piece >= all) return;
  const int32_t id = ids[ranks.order[first + piece - 1]];
  const IdRun run = run_of(ranks, id);
  if (run.begin < first || run.end <= first + piece) return;
  const int32_t pieces = (run.end - 1) / piece - static_cast<int32_t>(blockIdx.x);  // after this one
  for (int64_t c = threadIdx.x * N; c < size.width; c += threads * N) {
    const float* own = partial + (blockIdx.x * int64_t{2} + 1) * size.width + c;
    float sum[N];
    load<N>(sum, own);
#pragma unroll 8
    for (int32_t i = 1; i <= pieces; ++i) {
      float v[N];
      load<N>(v, own + (2 * int64_t{i} - 1) * size.width);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += v[j];
    }
    add_to<N>(dtable + id * size.width + c, sum);
  }
}

int64_t pieces_of(const EmbeddingSize& size) {
  return ceil_div(size.rows, piece);
}

}  // namespace

template <class T>
void embedding_forward(GpuStream stream, T* y, const T* table, const int32_t* ids,
                       const EmbeddingSize& size) {
  if (size.rows * size.width == 0) return;
  with_pack<T>(packs<T>({y, table}, {size.width}), [&]<int N>() {
    forward_kernel<T, N>
        <<<grid(ceil_div(size.rows * size.width, threads * N)), threads, 0, stream>>>(y, table, ids, size);
  });
  check_launch("embedding_forward");
}

int64_t embedding_scratch(const EmbeddingSize& size) {
  return 2 * pieces_of(size) * size.width + 2 * size.vocab + 2 * size.rows;
}

template <class T>
void embedding_backward(GpuStream stream, Wide<T>* dtable, const T* dy, const int32_t* ids, int32_t* scratch,
                        const EmbeddingSize& size) {
  if (size.rows * size.width == 0) return;
  KATA_CHECK(size.rows < (int64_t{1} << 30), "embedding_backward: {} rows", size.rows);
  float* partial = reinterpret_cast<float*>(scratch);
  const Ranks ranks = ranks_of(scratch + 2 * pieces_of(size) * size.width, size);
  clear_kernel<<<grid(ceil_div(size.vocab, chunk)), chunk, 0, stream>>>(ranks.counts, size.vocab);
  rank_kernel<<<grid(ceil_div(size.rows, chunk)), chunk, 0, stream>>>(ranks, ids, size);
  begin_kernel<<<1, chunk, 0, stream>>>(ranks, size.vocab);
  order_kernel<<<1, chunk, 0, stream>>>(ranks, ids, size);
  check_launch("embedding_backward order");
  // Four columns a thread: 8 bytes of bf16, 16 of the gradient.
  const unsigned blocks = grid(pieces_of(size));
  const auto launch = [&]<int N>() {
    pieces_kernel<T, N><<<blocks, threads, 0, stream>>>(dtable, partial, dy, ids, ranks, size);
    long_runs_kernel<N><<<blocks, threads, 0, stream>>>(dtable, partial, ids, ranks, size);
  };
  if (size.width % 4 == 0 && packs<float>({dtable, partial}, {}) && reinterpret_cast<uintptr_t>(dy) % 16 == 0)
    launch.template operator()<4>();
  else
    launch.template operator()<1>();
  check_launch("embedding_backward");
}

#define KATA_INSTANTIATE(T)                                                                          \
  template void embedding_forward<T>(GpuStream, T*, const T*, const int32_t*, const EmbeddingSize&); \
  template void embedding_backward<T>(GpuStream, Wide<T>*, const T*, const int32_t*, int32_t*,       \
                                      const EmbeddingSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
