// Rotation of pairs in place, a pack of elements a thread; the table is read through the cache.
//
// Floor: memory. x is read and written once.
#include "kernels/common/launch.h"
#include "kernels/common/rows.cuh"
#include "ops/rope.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;

__global__ void table_kernel(float* table, const int64_t* positions, int64_t start, int64_t count,
                             int64_t pairs, int64_t group_width, int64_t pairs_per_frequency, double base) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  if (i >= count * pairs) return;
  const int64_t r = i / pairs, pair = i % pairs, first = pair / pairs_per_frequency * pairs_per_frequency;
  const double frequency = pow(base, -2.0 * static_cast<double>(first) / static_cast<double>(group_width));
  const double angle = static_cast<double>(positions != nullptr ? positions[r] : start + r) * frequency;
  double sine, cosine;
  sincos(angle, &sine, &cosine);
  table[2 * i] = static_cast<float>(cosine);
  table[2 * i + 1] = static_cast<float>(sine);
}

// Threads count packs of N elements, N even: width / N of a head, then heads, then tokens.
template <class T, int N>
__global__ void rotate_kernel(T* x, const float* table, float direction, Starts starts, RopeSpec spec,
                              RopeSize size) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x, packs = spec.width / N;
  if (i >= size.batch * size.time * size.heads * packs) return;
  const int64_t c = i % packs * N, row = i / packs, head = row % size.heads, token = row / size.heads;
  const int64_t b = token / size.time, t = token % size.time;
  const int64_t inside = c % spec.group_width();
  if (inside >= spec.rotated) return;
  const int64_t position = starts.data == nullptr ? t : t - starts.data[b * starts.time + t];
  const float* turn = table + position * spec.rotated + inside;
  T* at = x + b * size.batch_stride + t * size.token_stride + head * size.head_stride + c;
  float v[N];
  load<N>(v, at);
#pragma unroll
  for (int k = 0; k < N; k += 2) {
    if (inside + k >= spec.rotated) break;
    const float cosine = turn[k], sine = direction * turn[k + 1], even = v[k], odd = v[k + 1];
    v[k] = even * cosine - odd * sine;
    v[k + 1] = even * sine + odd * cosine;
  }
  store<N>(at, v);
}

// One pair a thread, for widths and places that allow no packs.
template <class T>
__global__ void single_kernel(T* x, const float* table, float direction, Starts starts, RopeSpec spec,
                              RopeSize size) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x, pairs = spec.pairs() * spec.groups;
  if (i >= size.batch * size.time * size.heads * pairs) return;
  const int64_t pair = i % pairs % spec.pairs(), group = i % pairs / spec.pairs(), row = i / pairs;
  const int64_t head = row % size.heads, token = row / size.heads, b = token / size.time,
                t = token % size.time;
  const int64_t position = starts.data == nullptr ? t : t - starts.data[b * starts.time + t];
  const float* turn = table + (position * spec.pairs() + pair) * 2;
  T* at = x + b * size.batch_stride + t * size.token_stride + head * size.head_stride +
          group * spec.group_width() + 2 * pair;
  const float cosine = turn[0], sine = direction * turn[1], even = to_float(at[0]), odd = to_float(at[1]);
  at[0] = from_float<T>(even * cosine - odd * sine);
  at[1] = from_float<T>(even * sine + odd * cosine);
}

}  // namespace

void rope_table(GpuStream stream, float* table, const int64_t* positions, int64_t start, int64_t count,
                const RopeSpec& spec) {
  if (count * spec.pairs() == 0) return;
  table_kernel<<<grid(ceil_div(count * spec.pairs(), threads)), threads, 0, stream>>>(
      table, positions, start, count, spec.pairs(), spec.group_width(), spec.pairs_per_frequency, spec.base);
  check_launch("rope_table");
}

template <class T>
void rope_rotate(GpuStream stream, T* x, const Wide<T>* table, int direction, const Starts& starts,
                 const RopeSpec& spec, const RopeSize& size) {
  const int64_t elements = size.batch * size.time * size.heads * spec.width;
  if (elements * spec.rotated == 0) return;
  const bool packed =
      packs<T>({x}, {size.batch_stride, size.token_stride, size.head_stride, spec.group_width()});
  if (packed) {
    rotate_kernel<T, full_pack<T>><<<grid(ceil_div(elements / full_pack<T>, threads)), threads, 0, stream>>>(
        x, table, static_cast<float>(direction), starts, spec, size);
  } else {
    const int64_t pairs = size.batch * size.time * size.heads * spec.groups * spec.pairs();
    single_kernel<T><<<grid(ceil_div(pairs, threads)), threads, 0, stream>>>(
        x, table, static_cast<float>(direction), starts, spec, size);
  }
  check_launch("rope_rotate");
}

template void rope_rotate<float>(GpuStream, float*, const float*, int, const Starts&, const RopeSpec&,
                                 const RopeSize&);
template void rope_rotate<bf16>(GpuStream, bf16*, const float*, int, const Starts&, const RopeSpec&,
                                const RopeSize&);

}  // namespace kata::cuda
