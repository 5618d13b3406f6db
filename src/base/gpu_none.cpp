// base/gpu.h in a build without CUDA: there is no GPU.
#if !KATA_CUDA

#include "base/error.h"
#include "base/gpu.h"

namespace kata {

namespace {
[[noreturn]] void no_cuda() {
  fail(ExitCode::device, "{}", gpu_problem());
}
}  // namespace

std::string gpu_problem() {
  return "this build has no CUDA support; use --device cpu, or build with -DKATA_CUDA=ON";
}

Gpu::Gpu(int) {
  no_cuda();
}
Gpu::~Gpu() = default;
size_t Gpu::free_memory() const {
  return 0;
}
void Gpu::upload(void*, const void*, size_t) const {}
void Gpu::download(void*, const void*, size_t) const {}
void Gpu::copy(void*, const void*, size_t) const {}
void Gpu::zero(void*, size_t) const {}
void Gpu::synchronise() const {}

void FreeDevice::operator()(void*) const {}
void FreePinned::operator()(void*) const {}
std::unique_ptr<void, FreeDevice> device_memory(size_t) {
  no_cuda();
}
std::unique_ptr<void, FreePinned> pinned_memory(size_t) {
  no_cuda();
}

GpuGraph::GpuGraph(const Gpu& gpu, const std::function<void()>&) : gpu_(gpu) {
  no_cuda();
}
GpuGraph::~GpuGraph() = default;
void GpuGraph::launch() const {}

}  // namespace kata

#endif
