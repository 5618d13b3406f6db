// One CUDA device: its stream, library handle and memory. Without CUDA headers, and in builds without CUDA
// too (where no Gpu can be made).
//
// Work is asynchronous on one stream; whoever reads a result on the host synchronises first. Every failure is
// ExitCode::device with what to do.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

struct CUstream_st;
struct CUgraphExec_st;

namespace kata {

using GpuStream = CUstream_st*;  // cudaStream_t

// This build has CUDA kernels (KATA_CUDA).
inline constexpr bool cuda_build = KATA_CUDA != 0;

// Why no GPU can be used here, as one line that says what to do; empty if one can.
std::string gpu_problem();

class Gpu {
 public:
  explicit Gpu(
      int index);  // ExitCode::device: no such GPU, no driver, an old one, an unsupported architecture
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  GpuStream stream() const { return stream_; }
  void* blas() const { return blas_; }  // cublasLtHandle_t
  void* workspace() const { return workspace_; }
  static constexpr size_t workspace_bytes = size_t{64} << 20;

  const std::string& name() const { return name_; }
  double peak_bf16_flops() const { return peak_bf16_flops_; }  // dense, by the data sheet; 0 where not known
  size_t free_memory() const;

  // In the order of the stream. Host memory of the copies should be pinned (PinnedMemory) to be asynchronous.
  void upload(void* device, const void* host, size_t bytes) const;
  void download(void* host, const void* device, size_t bytes) const;
  void copy(void* to, const void* from, size_t bytes) const;  // both on the device
  void zero(void* device, size_t bytes) const;
  void synchronise() const;  // also reports what went wrong in an earlier kernel

 private:
  GpuStream stream_ = nullptr;
  void* blas_ = nullptr;
  void* workspace_ = nullptr;
  std::string name_;
  double peak_bf16_flops_ = 0;
};

// A block of device memory, or of page-locked host memory.
struct FreeDevice {
  void operator()(void* p) const;
};
struct FreePinned {
  void operator()(void* p) const;
};
std::unique_ptr<void, FreeDevice> device_memory(size_t bytes);  // null where the device has no such block
std::unique_ptr<void, FreePinned> pinned_memory(size_t bytes);  // ExitCode::device likewise

// Work recorded once and launched again as a whole: what `body` sends to the stream, which must not read
// results, allocate or synchronise. Addresses are kept.
class GpuGraph {
 public:
  GpuGraph(const Gpu& gpu, const std::function<void()>& body);
  ~GpuGraph();
  GpuGraph(const GpuGraph&) = delete;
  GpuGraph& operator=(const GpuGraph&) = delete;
  void launch() const;

 private:
  const Gpu& gpu_;
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace kata
