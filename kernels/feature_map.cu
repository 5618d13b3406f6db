// Features written out: a block has a row, lifted in shared memory, and its threads share the features.
//
// Floor: memory. Forward reads x and writes f; backward reads df and x and writes dx.
#include "kernels/common/features.cuh"

namespace kata::cuda {

namespace {

constexpr int threads = 128;

template <class T>
__global__ void forward_kernel(T* f, const T* x, DeviceMap map, int64_t x_stride) {
  extern __shared__ float u[];  // [width]
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < 32) lift_row(u, 1, x + blockIdx.x * x_stride, map, thread);
  __syncthreads();
  T* row = f + int64_t{blockIdx.x} * map.features;
  for (int p = thread; p < map.features; p += threads)
    row[p] = from_float<T>(feature_of(map, feature_entry(map, p), u, 1));
}

// The gradient of entry c of part j of u: its square, and its products with every other entry.
template <class T>
__device__ float entry_gradient(const DeviceMap& map, const T* df, const float* u, int j, int c) {
  const int strict = map.part * (map.part - 1) / 2;  // products of two different entries
  if (map.kind == MapKind::psd) df += j * (map.part + strict);
  const int components = map.complex ? map.parts : 1;
  float sum = 0;
  for (int e = 0; e < components; ++e) {
    const float* partner = u + (j ^ e) * map.part;
    float products = 0;
    for (int other = 0; other < map.part; ++other) {
      if (other == c) continue;
      const int high = c > other ? c : other, low = c > other ? other : c;
      const float sign = e == 0 ? 1.f : sign_unit_times(e, c > other ? j : j ^ e);
      products += sign * to_float(df[map.part + e * strict + high * (high - 1) / 2 + low]) * partner[other];
    }
    sum += products;
  }
  return 2 * to_float(df[c]) * u[j * map.part + c] + 1.41421356237309505f * sum;
}

template <class T>
__global__ void backward_kernel(T* dx, const T* df, const T* x, DeviceMap map, int64_t x_stride) {
  extern __shared__ float u[];  // [width], then its gradient
  float* du = u + map.width;
  const auto thread = static_cast<int>(threadIdx.x);
  const T* row = x + blockIdx.x * x_stride;
  const T* gradient = df + int64_t{blockIdx.x} * map.features;
  if (thread < 32) lift_row(u, 1, row, map, thread);
  __syncthreads();
  for (int i = thread; i < map.width; i += threads)
    du[i] = map.first_order ? to_float(gradient[i])
                            : entry_gradient(map, gradient, u, i / map.part, i % map.part);
  __syncthreads();
  if (thread < 32) lift_row_backward(dx + blockIdx.x * x_stride, du, 1, row, map, thread);
}

}  // namespace

template <class T>
void feature_map_forward(GpuStream stream, T* f, const T* x, const FeatureMap& map, int64_t rows,
                         int64_t x_stride) {
  if (rows == 0) return;
  const DeviceMap device = device_map(map);
  forward_kernel<T><<<grid(rows), threads, static_cast<size_t>(device.width) * sizeof(float), stream>>>(
      f, x, device, x_stride);
  check_launch("feature_map_forward");
}

template <class T>
void feature_map_backward(GpuStream stream, T* dx, const T* df, const T* x, const FeatureMap& map,
                          int64_t rows, int64_t x_stride) {
  if (rows == 0) return;
  const DeviceMap device = device_map(map);
  backward_kernel<T><<<grid(rows), threads, 2 * static_cast<size_t>(device.width) * sizeof(float), stream>>>(
      dx, df, x, device, x_stride);
  check_launch("feature_map_backward");
}

#define KATA_INSTANTIATE(T)                                                                            \
  template void feature_map_forward<T>(GpuStream, T*, const T*, const FeatureMap&, int64_t, int64_t);  \
  template void feature_map_backward<T>(GpuStream, T*, const T*, const T*, const FeatureMap&, int64_t, \
                                        int64_t);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
