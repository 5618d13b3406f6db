// Any bytes as a safetensors file: it is read whole or refused with ExitCode::data.
//
//   build/fuzz/bin/safetensors_fuzz -max_total_time=180 FOLDER tests/train/fixtures/llama_grouped
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/safetensors.h"

namespace kata {
namespace {

// Reads everything that the file offers, tensors of floats through the conversion to fp32.
void read_all(const std::string& path) {
  const SafetensorsFile file(path);
  uint64_t sum = 0;
  for (const std::string& name : file.names()) {
    for (const std::byte byte : file.bytes(name)) sum += static_cast<uint64_t>(byte);
    const TensorInfo& info = file.info(name);
    const bool floats = info.dtype == "F32" || info.dtype == "F16" || info.dtype == "BF16";
    if (!floats || info.shape.size() != 1) continue;
    std::vector<float> values(static_cast<size_t>(info.shape[0]));
    file.read_into(name, Tensor(values.data(), DType::f32, {info.shape[0]}));
  }
  static volatile uint64_t kept;
  kept = sum;
}

}  // namespace
}  // namespace kata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int memory = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  if (ftruncate(memory, 0) != 0 || pwrite(memory, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    kata::read_all(path);
  } catch (const kata::Error& error) {
    if (error.code() != kata::ExitCode::data) std::abort();
  }
  return 0;
}
