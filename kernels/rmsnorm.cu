// RMSNorm: a group of lanes has a row, read in 16-byte packs.
//
// Floor: forward reads x and writes y once, 2 bytes an element each in bf16; backward reads dy and x and
// writes dx (reads it too when accumulating). Bytes over bandwidth: no arithmetic to speak of.
#include "kernels/common/reduce.cuh"
#include "kernels/common/rows.cuh"
#include "ops/rmsnorm.h"

namespace kata::cuda {

namespace {

constexpr int warps = 8, threads = 32 * warps;
constexpr int block_row_threads = 512;  // at most, where a block has a row

template <class T, int N, int lanes>
__global__ void forward_kernel(T* y, float* rstd, const T* x, const float* weight, float eps,
                               RmsNormSize size) {
  const int64_t row = (blockIdx.x * int64_t{threads} + threadIdx.x) / lanes;
  if (row >= size.rows * size.inner) return;  // whole groups of lanes leave, and shuffles stay inside one
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const RowPlace at = row_place(row, size);
  float squares = 0, v[N];
  for (int64_t c = lane * N; c < size.width; c += lanes * N) {
    load<N>(v, x + at.x + c);
#pragma unroll
    for (int i = 0; i < N; ++i) squares += v[i] * v[i];
  }
  const float scale = rsqrtf(lane_sum<lanes>(squares) / static_cast<float>(size.width) + eps);
  if (lane == 0) rstd[row] = scale;
  for (int64_t c = lane * N; c < size.width; c += lanes * N) {
    float w[N];
    load<N>(v, x + at.x + c);
    load<N>(w, weight + c);
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] *= scale * w[i];
    store<N>(y + at.y + c, v);
  }
}

template <class T>
struct BackwardCall {
  T* dx;
  float* partial;
  const T *dy, *x;
  const float *rstd, *weight;
  bool accumulate;
};

// Rows of one block, of which every group of lanes takes each groups-th.
int64_t rows_per_block(const RmsNormSize& size) {
  return std::max<int64_t>(32, ceil_div(size.rows * size.inner, 1056));
}

// A lane has a pack of N columns of every row that its group takes: the row stays in registers between its
// mean and its gradient, and so does the lane's part of dweight. Widths below the packs leave lanes idle.
template <class T, int N, int lanes>
__global__ void __launch_bounds__(threads)
    backward_kernel(T* dx, float* partial, const T* dy, const T* x, const float* rstd, const float* weight,
                    bool accumulate, int64_t block_rows, RmsNormSize size) {
  extern __shared__ float shared[];  // [warps][width]
  constexpr int groups = threads / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int64_t column = static_cast<int64_t>(lane) * N;
  const bool has_columns = column < size.width;
  float sums[N] = {}, w[N] = {};
  if (has_columns) load<N>(w, weight + column);
  const int64_t begin = blockIdx.x * block_rows, all = size.rows * size.inner;
  const int64_t end = begin + block_rows < all ? begin + block_rows : all;
  // All groups take the same number of turns: shuffles need every lane.
  for (int64_t first = begin; first < end; first += groups) {
    const int64_t row = first + group;
    const bool works = row < end && has_columns;
    const RowPlace at = works ? row_place(row, size) : RowPlace{0, 0};
    const float scale = works ? rstd[row] : 0;
    float d[N] = {}, v[N] = {}, old[N] = {}, mean = 0;
    if (works) {
      load<N>(d, dy + at.y + column);
      load<N>(v, x + at.x + column);
      if (accumulate) load<N>(old, dx + at.x + column);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[i] += d[i] * v[i] * scale;
      d[i] *= w[i];
      mean += d[i] * v[i];
    }
    mean = lane_sum<lanes>(mean) / static_cast<float>(size.width) * scale * scale;
    if (!works) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = old[i] + scale * (d[i] - v[i] * mean);
    store<N>(dx + at.x + column, d);
  }
  float* row = shared + static_cast<int>(threadIdx.x) / 32 * size.width;
  warp_columns<lanes>(row, sums, column, size.width);
  block_columns<warps>(partial + blockIdx.x * size.width, shared, size.width);
}

// The packs of one thread in `turn` rows from `first` on; zeros outside.
template <class T, int N, int turn>
struct RowPacks {
  Pack<T, N> d[turn], v[turn], old[turn];
  float scale[turn];

  __device__ void load(const BackwardCall<T>& c, const RmsNormSize& size, int64_t first, int64_t end,
                       int64_t column) {
    const auto pack = [&](const T* p) { return *reinterpret_cast<const Pack<T, N>*>(p + column); };
#pragma unroll
    for (int r = 0; r < turn; ++r) {
      d[r] = v[r] = old[r] = {};
      scale[r] = 0;
      if (first + r >= end || column >= size.width) continue;
      const RowPlace at = row_place(first + r, size);
      d[r] = pack(c.dy + at.y);
      v[r] = pack(c.x + at.x);
      if (c.accumulate) old[r] = pack(c.dx + at.x);
      scale[r] = c.rstd[first + r];
    }
  }
};

// A block has a row, a pack of N columns a thread. It takes `turn` rows at once and loads the next ones
// meanwhile, so that enough bytes are under way. A thread's part of dweight stays in registers.
template <class T, int N, int turn>
__global__ void __launch_bounds__(block_row_threads)
    block_backward_kernel(BackwardCall<T> c, int64_t block_rows, RmsNormSize size) {
  __shared__ float means[2][block_row_threads / 32][turn];  // of warps; two sets, so that one barrier does
  const int64_t column = int64_t{threadIdx.x} * N;
  const bool has_columns = column < size.width;
  const int warp = static_cast<int>(threadIdx.x) / 32, all_warps = static_cast<int>(blockDim.x) / 32;
  float sums[N] = {}, w[N] = {};
  if (has_columns) load<N>(w, c.weight + column);
  const int64_t begin = blockIdx.x * block_rows, all = size.rows * size.inner;
  const int64_t end = begin + block_rows < all ? begin + block_rows : all;
  RowPacks<T, N, turn> row, next;
  row.load(c, size, begin, end, column);
  int set = 0;
  for (int64_t first = begin; first < end; first += turn, set ^= 1, row = next) {
    next.load(c, size, first + turn, end, column);
#pragma unroll
    for (int r = 0; r < turn; ++r) {
      float mean = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float product = to_float(row.d[r].at[i]) * to_float(row.v[r].at[i]);
        sums[i] += product * row.scale[r];
        mean += product * w[i];
      }
      mean = lane_sum<32>(mean);
      if (threadIdx.x % 32 == 0) means[set][warp][r] = mean;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < turn; ++r) {
      if (first + r >= end || !has_columns) continue;
      float mean = 0;
      for (int i = 0; i < all_warps; ++i) mean += means[set][i][r];
      const float scale = row.scale[r];
      mean = mean / static_cast<float>(size.width) * scale * scale;
      float out[N];
#pragma unroll
      for (int i = 0; i < N; ++i)
        out[i] = to_float(row.old[r].at[i]) +
                 scale * (to_float(row.d[r].at[i]) * w[i] - to_float(row.v[r].at[i]) * mean);
      store<N>(c.dx + row_place(first + r, size).x + column, out);
    }
  }
  if (has_columns) store<N>(c.partial + blockIdx.x * size.width + column, sums);
}

// Rows of any width and alignment: each group of lanes sums its rows' part of dweight in its own row of
// shared memory.
template <class T, int N, int lanes>
__global__ void wide_backward_kernel(T* dx, float* partial, const T* dy, const T* x, const float* rstd,
                                     const float* weight, bool accumulate, int64_t block_rows, int groups,
                                     RmsNormSize size) {
  extern __shared__ float sums[];  // [groups][width]
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  float* own = sums + group * size.width;
  for (int64_t c = lane * N; c < size.width; c += lanes * N)
#pragma unroll
    for (int i = 0; i < N; ++i) own[c + i] = 0;
  const int64_t begin = blockIdx.x * block_rows, all = size.rows * size.inner;
  const int64_t end = begin + block_rows < all ? begin + block_rows : all;
  // All groups take the same number of turns: shuffles need every lane.
  for (int64_t first = begin; first < end; first += groups) {
    const int64_t row = first + group;
    const bool inside = row < end;
    const RowPlace at = inside ? row_place(row, size) : RowPlace{0, 0};
    const float scale = inside ? rstd[row] : 0;
    float mean = 0;
    for (int64_t c = lane * N; inside && c < size.width; c += lanes * N) {
      float d[N], v[N], w[N];
      load<N>(d, dy + at.y + c);
      load<N>(v, x + at.x + c);
      load<N>(w, weight + c);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        mean += d[i] * w[i] * v[i];
        own[c + i] += d[i] * v[i] * scale;
      }
    }
    mean = lane_sum<lanes>(mean) / static_cast<float>(size.width) * scale * scale;
    for (int64_t c = lane * N; inside && c < size.width; c += lanes * N) {
      float d[N], v[N], w[N], old[N] = {};
      load<N>(d, dy + at.y + c);
      load<N>(v, x + at.x + c);
      load<N>(w, weight + c);
      if (accumulate) load<N>(old, dx + at.x + c);
#pragma unroll
      for (int i = 0; i < N; ++i) d[i] = old[i] + scale * (d[i] * w[i] - v[i] * mean);
      store<N>(dx + at.x + c, d);
    }
  }
  __syncthreads();
  for (int64_t c = threadIdx.x; c < size.width; c += blockDim.x) {
    float sum = 0;
    for (int g = 0; g < groups; ++g) sum += sums[g * size.width + c];
    partial[blockIdx.x * size.width + c] = sum;
  }
}

template <class T, int lanes>
void launch_backward(GpuStream stream, const BackwardCall<T>& c, const RmsNormSize& size) {
  const size_t shared = warps * static_cast<size_t>(size.width) * sizeof(float);
  backward_kernel<T, full_pack<T>, lanes><<<grid(rmsnorm_partials(size)), threads, shared, stream>>>(
      c.dx, c.partial, c.dy, c.x, c.rstd, c.weight, c.accumulate, rows_per_block(size), size);
}

template <class T>
void launch_block_backward(GpuStream stream, const BackwardCall<T>& c, const RmsNormSize& size) {
  const int64_t packs_of_row = ceil_div(size.width, full_pack<T>);
  block_backward_kernel<T, full_pack<T>, 2>
      <<<grid(rmsnorm_partials(size)), static_cast<unsigned>(ceil_div(packs_of_row, 32) * 32), 0, stream>>>(
          c, rows_per_block(size), size);
}

template <class T>
void launch_wide_backward(GpuStream stream, bool packed, const BackwardCall<T>& c, const RmsNormSize& size) {
  KATA_CHECK(size.width <= 12288, "rmsnorm_backward: rows of {}", size.width);
  with_pack<T>(packed, [&]<int N>() {
    // As many warps as fit into 48 KiB of sums.
    const int groups = static_cast<int>(std::clamp<int64_t>(12288 / size.width, 1, warps));
    wide_backward_kernel<T, N, 32><<<grid(rmsnorm_partials(size)), 32 * groups,
                                     groups* static_cast<size_t>(size.width) * sizeof(float), stream>>>(
        c.dx, c.partial, c.dy, c.x, c.rstd, c.weight, c.accumulate, rows_per_block(size), groups, size);
  });
}

}  // namespace

template <class T>
void rmsnorm_forward(GpuStream stream, T* y, Wide<T>* rstd, const T* x, const Wide<T>* weight, float eps,
                     const RmsNormSize& size) {
  if (size.rows * size.inner == 0) return;
  with_lanes<T>(packs<T>({y, x, weight}, {size.x_stride, size.y_stride, size.width}), size.width,
                [&]<int N, int lanes>() {
                  const int64_t blocks = ceil_div(size.rows * size.inner, threads / lanes);
                  forward_kernel<T, N, lanes>
                      <<<grid(blocks), threads, 0, stream>>>(y, rstd, x, weight, eps, size);
                });
  check_launch("rmsnorm_forward");
}

int64_t rmsnorm_partials(const RmsNormSize& size) {
  return std::max<int64_t>(1, ceil_div(size.rows * size.inner, rows_per_block(size)));
}

template <class T>
void rmsnorm_backward(GpuStream stream, T* dx, Wide<T>* dweight, const T* dy, const T* x, const Wide<T>* rstd,
                      const Wide<T>* weight, Wide<T>* partial, bool accumulate, const RmsNormSize& size) {
  if (size.rows * size.inner == 0) return;
  const BackwardCall<T> call = {dx, partial, dy, x, rstd, weight, accumulate};
  const bool packed = packs<T>({dx, dy, x, weight}, {size.x_stride, size.y_stride, size.width});
  const int64_t width = ceil_div(size.width, full_pack<T>);  // in packs
  if (!packed || width > block_row_threads)
    launch_wide_backward(stream, packed, call, size);
  else if (width <= 4)
    launch_backward<T, 4>(stream, call, size);
  else if (width <= 8)
    launch_backward<T, 8>(stream, call, size);
  else if (width <= 16)
    launch_backward<T, 16>(stream, call, size);
  else if (width <= 32)
    launch_backward<T, 32>(stream, call, size);
  else
    launch_block_backward(stream, call, size);
  check_launch("rmsnorm_backward");
  add_partials(stream, dweight, partial, rmsnorm_partials(size), size.width);
}

template void rmsnorm_forward<float>(GpuStream, float*, float*, const float*, const float*, float,
                                     const RmsNormSize&);
template void rmsnorm_forward<bf16>(GpuStream, bf16*, float*, const bf16*, const float*, float,
                                    const RmsNormSize&);
template void rmsnorm_backward<float>(GpuStream, float*, float*, const float*, const float*, const float*,
                                      const float*, float*, bool, const RmsNormSize&);
template void rmsnorm_backward<bf16>(GpuStream, bf16*, float*, const bf16*, const bf16*, const float*,
                                     const float*, float*, bool, const RmsNormSize&);

}  // namespace kata::cuda
