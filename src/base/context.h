// What every op is handed: where it runs and where its memory comes from.
#pragma once

#include "base/arena.h"
#include "base/gpu.h"

namespace kata {

enum class Device { cpu, cuda };

struct Context {
  Arena& arena;  // activations and scratch of the step, in the memory of the device
  Device device = Device::cpu;
  Gpu* gpu = nullptr;  // of Device::cuda; null in the planning pass

  // In the planning pass an op checks its arguments, takes its scratch and returns.
  bool planning() const { return arena.planning(); }
  GpuStream stream() const { return gpu->stream(); }
};

}  // namespace kata
