// base/gpu.h on the CUDA runtime.
#if KATA_CUDA

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/gpu.h"

namespace kata {

namespace {

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  const char* advice = error == cudaErrorMemoryAllocation
                           ? "lower train.micro_batch or set train.recompute: block"
                           : "run once with CUDA_LAUNCH_BLOCKING=1 and under compute-sanitizer to see where";
  fail(ExitCode::device, "{}: CUDA reports {} ({}); {}", doing, cudaGetErrorName(error),
       cudaGetErrorString(error), advice);
}

// The oldest architecture that kernels are compiled for.
constexpr int oldest_major = 8;

// Dense bf16 operations a second by the vendor's data sheets (SXM parts).
double peak_of(const std::string& name) {
  for (const char* hopper : {"H100", "H200", "H800", "GH200"})
    if (name.find(hopper) != std::string::npos && name.find("PCIe") == std::string::npos) return 989.4e12;
  return name.find("A100") != std::string::npos || name.find("A800") != std::string::npos ? 312e12 : 0;
}

}  // namespace

std::string gpu_problem() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return "no CUDA driver was found; install the NVIDIA driver, or use --device cpu";
    return fmt::format(
        "the CUDA driver supports CUDA {}.{}, this build needs {}.{}; update the driver, or use "
        "--device cpu",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
    return "no GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu";
  if (error != cudaSuccess)
    return fmt::format("CUDA reports {} ({}); check nvidia-smi, or use --device cpu", cudaGetErrorName(error),
                       cudaGetErrorString(error));
  return {};
}

Gpu::Gpu(int index) {
  if (const std::string problem = gpu_problem(); !problem.empty())
    fail(ExitCode::device, "--device cuda: {}", problem);
  int count = 0;
  check(cudaGetDeviceCount(&count), "counting GPUs");
  if (index < 0 || index >= count)
    fail(ExitCode::device, "--device cuda:{}: there is no such GPU, the last of {} is cuda:{}", index, count,
         count - 1);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "reading the GPU's properties");
  name_ = properties.name;
  if (properties.major < oldest_major)
    fail(
        ExitCode::device,
        "--device cuda:{}: {} has compute capability {}.{}, the kernels need {}.0 or newer; use --device cpu",
        index, name_, properties.major, properties.minor, oldest_major);
  peak_bf16_flops_ = peak_of(name_);
  check(cudaSetDevice(index), "choosing the GPU");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  cublasLtHandle_t handle = nullptr;
  if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
    fail(ExitCode::device, "cuBLASLt could not be started on {}; is its memory in use (nvidia-smi)?", name_);
  blas_ = handle;
  check(cudaMalloc(&workspace_, workspace_bytes), "allocating the workspace of matrix products");
}

Gpu::~Gpu() {
  cudaFree(workspace_);
  cublasLtDestroy(static_cast<cublasLtHandle_t>(blas_));
  cudaStreamDestroy(stream_);
}

size_t Gpu::free_memory() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the GPU's free memory");
  return free;
}

void Gpu::upload(void* device, const void* host, size_t bytes) const {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "copying to the GPU");
}
void Gpu::download(void* host, const void* device, size_t bytes) const {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "copying from the GPU");
}
void Gpu::copy(void* to, const void* from, size_t bytes) const {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copying on the GPU");
}
void Gpu::zero(void* device, size_t bytes) const {
  check(cudaMemsetAsync(device, 0, bytes, stream_), "clearing GPU memory");
}
void Gpu::synchronise() const {
  check(cudaStreamSynchronize(stream_), "waiting for the GPU");
  check(cudaGetLastError(), "launching a kernel");
}

void FreeDevice::operator()(void* p) const {
  cudaFree(p);
}
void FreePinned::operator()(void* p) const {
  cudaFreeHost(p);
}
std::unique_ptr<void, FreeDevice> device_memory(size_t bytes) {
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it has been dealt with
    return nullptr;
  }
  check(error, "allocating GPU memory");
  return std::unique_ptr<void, FreeDevice>(p);
}
std::unique_ptr<void, FreePinned> pinned_memory(size_t bytes) {
  void* p = nullptr;
  check(cudaMallocHost(&p, bytes), "allocating page-locked memory");
  return std::unique_ptr<void, FreePinned>(p);
}

GpuGraph::GpuGraph(const Gpu& gpu, const std::function<void()>& body) : gpu_(gpu) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(gpu.stream(), cudaStreamCaptureModeThreadLocal), "recording a step");
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(gpu.stream(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(gpu.stream(), &graph), "recording a step");
  const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "preparing a recorded step");
}
GpuGraph::~GpuGraph() {
  cudaGraphExecDestroy(graph_);
}
void GpuGraph::launch() const {
  check(cudaGraphLaunch(graph_, gpu_.stream()), "launching a recorded step");
}

}  // namespace kata

#endif
