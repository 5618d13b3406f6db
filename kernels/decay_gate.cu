// Decays from their projection, an element a thread; the sums over rows go to partial rows.
//
// Floor: memory. Forward reads x and writes log_decay; backward reads dlog_decay and x and writes dx.
#include "kernels/common/elements.cuh"
#include "kernels/common/reduce.cuh"
#include "ops/decay_gate.h"

namespace kata::cuda {

namespace {

constexpr int threads = 256;
constexpr int64_t block_rows = 128;  // rows of a partial sum

// softplus and its derivative from one exponential, whose argument is never positive.
struct SoftPlus {
  float value, slope;
  __device__ explicit SoftPlus(float z) {
    const float e = expf(z > 0 ? -z : z);
    value = (z > 0 ? z : 0) + log1pf(e);
    slope = (z > 0 ? 1 : e) / (1 + e);
  }
};

template <class T>
__global__ void forward_kernel(float* log_decay, float* dt, const T* x, const float* a_log,
                               const float* dt_bias, DecayGateSize size) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x;
  if (i >= size.rows * size.heads) return;
  const int64_t r = i / size.heads, h = i % size.heads;
  const float step = SoftPlus(to_float(x[r * size.x_stride + h]) + dt_bias[h]).value;
  log_decay[i] = -expf(a_log[h]) * step;
  if (dt != nullptr) dt[i] = step;
}

// A thread walks the rows of a block for one head. partial: [blocks][2][heads].
template <class T>
__global__ void backward_kernel(T* dx, float* partial, const float* dlog_decay, const float* ddt, const T* x,
                                const float* a_log, const float* dt_bias, DecayGateSize size) {
  const int64_t i = blockIdx.x * int64_t{threads} + threadIdx.x, h = i % size.heads, block = i / size.heads;
  const int64_t begin = block * block_rows,
                end = begin + block_rows < size.rows ? begin + block_rows : size.rows;
  if (begin >= size.rows) return;
  const float rate = expf(a_log[h]);
  float da = 0, db = 0;
  for (int64_t r = begin; r < end; ++r) {
    const SoftPlus plus(to_float(x[r * size.x_stride + h]) + dt_bias[h]);
    const float g = dlog_decay[r * size.heads + h];
    const float d = ((ddt == nullptr ? 0 : ddt[r * size.heads + h]) - rate * g) * plus.slope;
    da -= g * rate * plus.value;
    db += d;
    dx[r * size.dx_stride + h] = from_float<T>(d);
  }
  partial[block * 2 * size.heads + h] = da;
  partial[(block * 2 + 1) * size.heads + h] = db;
}

// Columns [2][heads] of a partial row: da_log, then ddt_bias, as an offset from da_log.
struct TwoSums {
  float *da_log, *ddt_bias;
  int64_t heads;
  __device__ int64_t operator()(int64_t c) const { return c < heads ? c : ddt_bias - da_log + c - heads; }
};

}  // namespace

template <class T>
void decay_gate_forward(GpuStream stream, Wide<T>* log_decay, Wide<T>* dt, const T* x, const Wide<T>* a_log,
                        const Wide<T>* dt_bias, const DecayGateSize& size) {
  if (size.rows * size.heads == 0) return;
  forward_kernel<T><<<grid(ceil_div(size.rows * size.heads, threads)), threads, 0, stream>>>(
      log_decay, dt, x, a_log, dt_bias, size);
  check_launch("decay_gate_forward");
}

int64_t decay_gate_partials(const DecayGateSize& size) {
  return std::max<int64_t>(1, ceil_div(size.rows, block_rows));
}

template <class T>
void decay_gate_backward(GpuStream stream, T* dx, Wide<T>* da_log, Wide<T>* ddt_bias,
                         const Wide<T>* dlog_decay, const Wide<T>* ddt, const T* x, const Wide<T>* a_log,
                         const Wide<T>* dt_bias, Wide<T>* partial, const DecayGateSize& size) {
  if (size.rows * size.heads == 0) return;
  const int64_t blocks = decay_gate_partials(size);
  backward_kernel<T><<<grid(ceil_div(blocks * size.heads, threads)), threads, 0, stream>>>(
      dx, partial, dlog_decay, ddt, x, a_log, dt_bias, size);
  check_launch("decay_gate_backward");
  add_partials(stream, da_log, partial, blocks, 2 * size.heads, TwoSums{da_log, ddt_bias, size.heads});
}

#define KATA_INSTANTIATE(T)                                                                               \
  template void decay_gate_forward<T>(GpuStream, Wide<T>*, Wide<T>*, const T*, const Wide<T>*,            \
                                      const Wide<T>*, const DecayGateSize&);                              \
  template void decay_gate_backward<T>(GpuStream, T*, Wide<T>*, Wide<T>*, const Wide<T>*, const Wide<T>*, \
                                       const T*, const Wide<T>*, const Wide<T>*, Wide<T>*,                \
                                       const DecayGateSize&);
KATA_INSTANTIATE(float)
KATA_INSTANTIATE(bf16)
#undef KATA_INSTANTIATE

}  // namespace kata::cuda
