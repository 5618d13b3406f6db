// Rows scaled to a feature of length one: a warp has a row in shared memory.
//
// Floor: memory. Forward reads x and writes u; backward reads du and x and writes dx.
#include "kernels/common/elements.cuh"
#include "kernels/common/reduce.cuh"
#include "ops/unit_feature.h"

namespace kata::cuda {

namespace {

constexpr int warps = 4, threads = 32 * warps;
constexpr double least_squares = 1e-20;

// What the maps have in common: u = scale b / N(b), or the closed form of the cone.
struct Map {
  MapKind kind;
  int width, parts, part;  // of groups; hermitian and quaternionic count as one group
  bool first_order;
};
Map map_of(const FeatureMap& map) {
  const bool grouped = map.kind == MapKind::psd || map.kind == MapKind::psd_sum;
  const auto width = static_cast<int>(map.width), groups = static_cast<int>(grouped ? map.groups : 1);
  return {map.kind, width, groups, width / groups, map.first_order()};
}

// A row in shared memory, the lanes of one warp around it.
struct Row {
  float* b;  // [width]: the row or its lift, times t
  float t;   // a power of two that brings the largest entry near 1
};

__device__ __forceinline__ float inverse_power(float largest) {
  int exponent;
  frexpf(fmaxf(largest, 1.17549435e-38f), &exponent);
  return ldexpf(1.0f, 1 - exponent);  // the largest comes to lie in [1, 2)
}

// b = x or its lift (identity, orthant, psd family), times t.
template <class T>
__device__ Row load_row(float* shared, const T* x, const Map& map) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = 0;
  for (int c = lane; c < map.width; c += 32) {
    float v = to_float(x[c]);
    if (map.kind == MapKind::orthant) v = (v > 0 || v != v ? v : 0) + 1e-6f;
    shared[c] = v;
    largest = fmaxf(largest, fabsf(v));
  }
  const float t = inverse_power(lane_max<32>(largest));
  for (int c = lane; c < map.width; c += 32) shared[c] *= t;
  __syncwarp();
  return {shared, t};
}

__device__ float dot(const float* a, const float* b, int n) {
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < n; c += 32) sum += a[c] * b[c];
  return lane_sum<32>(sum);
}

// |f(t b)|^2
__device__ float squares_of(const Row& row, const Map& map) {
  if (map.first_order) return dot(row.b, row.b, map.width);
  float sum = 0;
  for (int i = 0; i < map.parts; ++i) {
    const float* own = row.b + i * map.part;
    const float square = dot(own, own, map.part);
    sum += square * square;
    for (int k = 0; map.kind == MapKind::psd_sum && k < i; ++k) {
      const float product = dot(own, row.b + k * map.part, map.part);
      sum += 2 * product * product;
    }
  }
  return sum;
}

__device__ bool vanishes(float squares, float t, const Map& map) {
  const double power = 1.0 / t, area = power * power;
  return static_cast<double>(squares) * (map.first_order ? area : area * area) <= least_squares;
}

// The cone's f = |h| (1 + tau^2) (c n, 1), n = h / |h|, c = 1 / (1 + tau^2): u = scale rho (c n, 1) with
// rho = 1 / sqrt(1 + c^2). shared = h t.
struct Cone {
  float t, inverse, c, rho, tau;
  bool zero;
};
template <class T>
__device__ Cone load_cone(float* shared, const T* x, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float largest = 0;
  for (int j = lane; j < width - 1; j += 32) {
    shared[j] = to_float(x[j]);
    largest = fmaxf(largest, fabsf(shared[j]));
  }
  Cone cone;
  cone.t = inverse_power(lane_max<32>(largest));
  for (int j = lane; j < width - 1; j += 32) shared[j] *= cone.t;
  __syncwarp();
  const float length = sqrtf(dot(shared, shared, width - 1));
  cone.tau = to_float(x[width - 1]);
  cone.inverse = 1 / length;
  const float poison = 0 * cone.tau + 0 * length;  // what is not finite must not hide
  cone.c = 1 / (1 + cone.tau * cone.tau) + poison;
  cone.rho = rsqrtf(1 + cone.c * cone.c);
  const double wide = cone.tau, last = 1 + fmin(wide * wide, 1e150);
  cone.zero = static_cast<double>(length) / cone.t * sqrt(1 + last * last) <= sqrt(least_squares);
  return cone;
}

template <class T>
__device__ void cone_forward(T* u, const T* x, float* shared, float scale, int width) {
  const Cone cone = load_cone(shared, x, width);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int j = lane; j < width; j += 32) {
    const float v = j + 1 < width ? shared[j] * cone.inverse * cone.c : 1.0f;
    u[j] = from_float<T>(cone.zero ? 0.0f : scale * cone.rho * v);
  }
}

// du / dn = scale rho c, and along c the gradient is scale rho^3 (<du_h, n> - c du_tau).
template <class T>
__device__ void cone_backward(T* dx, const T* du, const T* x, float* shared, float scale, int width) {
  const Cone cone = load_cone(shared, x, width);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float along = 0;  // <du_h, n>
  for (int j = lane; j < width - 1; j += 32) along += to_float(du[j]) * shared[j] * cone.inverse;
  along = lane_sum<32>(along);
  const float last = to_float(du[width - 1]);
  const float dc = scale * cone.rho * cone.rho * cone.rho * (along - cone.c * last);
  const float per_length =
      scale * cone.rho * cone.c * cone.inverse * cone.t;  // d n / d h = (I - n n^T) / |h|
  for (int j = lane; j < width; j += 32) {
    float d;
    if (j + 1 < width) {
      d = per_length * (to_float(du[j]) - along * shared[j] * cone.inverse);
    } else {
      d = dc * -2 * (cone.tau * cone.c) * cone.c;
    }
    dx[j] = from_float<T>(cone.zero ? 0.0f : d);
  }
}

template <class T>
__global__ void forward_kernel(T* u, const T* x, float scale, Map map, UnitFeatureSize size) {
  extern __shared__ float shared[];
  const int64_t row = blockIdx.x * int64_t{warps} + threadIdx.x / 32;
  if (row >= size.rows * size.heads) return;
  float* own = shared + threadIdx.x / 32 * map.width;
  const int64_t group = row / size.heads, inside = row % size.heads * map.width;
  x += group * size.x_stride + inside;
  u += group * size.u_stride + inside;
  if (map.kind == MapKind::lorentz) return cone_forward(u, x, own, scale, map.width);
  const Row b = load_row(own, x, map);
  const float squares = squares_of(b, map);
  const float root = map.first_order ? sqrtf(squares) : sqrtf(sqrtf(squares));
  const float factor = vanishes(squares, b.t, map) ? 0 : scale / root;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < map.width; c += 32)
    u[c] = from_float<T>(factor == 0 ? 0.0f : factor * b.b[c]);
}

// w of the row, times t^-1 of it: b / N^2, |b_i|^2 b_i / N^4, or sum_j <b_i, b_j> b_j / N^4, at column c.
__device__ float direction(const Row& row, const Map& map, const float* grams, float squares, int c) {
  if (map.first_order) return row.b[c] / squares;
  const int i = c / map.part;
  if (map.kind != MapKind::psd_sum) return grams[i * map.parts + i] * row.b[c] / squares;
  float sum = 0;
  for (int j = 0; j < map.parts; ++j) sum += grams[i * map.parts + j] * row.b[j * map.part + c % map.part];
  return sum / squares;
}

template <class T>
__global__ void backward_kernel(T* dx, const T* du, const T* x, float scale, Map map, UnitFeatureSize size) {
  extern __shared__ float shared[];
  const int64_t row = blockIdx.x * int64_t{warps} + threadIdx.x / 32;
  if (row >= size.rows * size.heads) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* own = shared + threadIdx.x / 32 * (map.width + map.parts * map.parts);
  float* grams = own + map.width;  // [parts][parts]
  const int64_t group = row / size.heads, inside = row % size.heads * map.width;
  x += group * size.x_stride + inside;
  du += group * size.u_stride + inside;
  dx += group * size.dx_stride + inside;
  if (map.kind == MapKind::lorentz) return cone_backward(dx, du, x, own, scale, map.width);
  const Row b = load_row(own, x, map);
  const float squares = squares_of(b, map);
  const float root = map.first_order ? sqrtf(squares) : sqrtf(sqrtf(squares));
  if (!map.first_order)
    for (int i = 0; i < map.parts; ++i)
      for (int j = map.kind == MapKind::psd_sum ? 0 : i;
           j < (map.kind == MapKind::psd_sum ? map.parts : i + 1); ++j) {
        const float product = dot(b.b + i * map.part, b.b + j * map.part, map.part);
        if (lane == 0) grams[i * map.parts + j] = product;
      }
  __syncwarp();
  float along = 0;  // <du, b>
  for (int c = lane; c < map.width; c += 32) along += to_float(du[c]) * b.b[c];
  along = lane_sum<32>(along);
  const bool zero = vanishes(squares, b.t, map);
  const float factor = scale / root * b.t;
  for (int c = lane; c < map.width; c += 32) {
    const float d = factor * (to_float(du[c]) - along * direction(b, map, grams, squares, c));
    const bool flat =
        map.kind == MapKind::orthant && !(to_float(x[c]) > 0) && to_float(x[c]) == to_float(x[c]);
    dx[c] = from_float<T>(zero || flat ? 0.0f : d);
  }
}

}  // namespace

template <class T>
void unit_feature_forward(GpuStream stream, T* u, const T* x, float scale, const FeatureMap& map,
                          const UnitFeatureSize& size) {
  if (size.rows * size.heads == 0) return;
  const size_t shared = warps * static_cast<size_t>(map.width) * sizeof(float);
  allow_shared(forward_kernel<T>, shared);
  forward_kernel<T><<<grid(ceil_div(size.rows * size.heads, warps)), threads, shared, stream>>>(
      u, x, scale, map_of(map), size);
  check_launch("unit_feature_forward");
}

template <class T>
void unit_feature_backward(GpuStream stream, T* dx, const T* du, const T* x, float scale,
                           const FeatureMap& map, const UnitFeatureSize& size) {
  if (size.rows * size.heads == 0) return;
  const Map m = map_of(map);
  const size_t shared = warps * static_cast<size_t>(m.width + m.parts * m.parts) * sizeof(float);
  allow_shared(backward_kernel<T>, shared);
  backward_kernel<T>
      <<<grid(ceil_div(size.rows * size.heads, warps)), threads, shared, stream>>>(dx, du, x, scale, m, size);
  check_launch("unit_feature_backward");
}

#define KATA_INSTANTIATE(T)                                                                           \
  template void unit_feature_forward<T>(GpuStream, T*, const T*, float, const FeatureMap&,            \
                                        const UnitFeatureSize&);                                      \
  template void unit_feature_backward<T>(GpuStream, T*, const T*, const T*, float, const FeatureMap&, \
                                         const UnitFeatureSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
