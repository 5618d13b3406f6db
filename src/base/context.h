// What every op is handed: where it runs and where its memory comes from.
#pragma once

#include "base/arena.h"
#include "base/gpu.h"

namespace kata {

enum class Device { cpu, cuda };

// Where a model computes.
struct Processor {
  Device device = Device::cpu;
  Gpu* gpu = nullptr;  // of Device::cuda; null where nothing but planning is done

  Arena::Memory memory() const { return device == Device::cuda ? Arena::Memory::gpu : Arena::Memory::host; }
};

struct Context {
  Context(Arena& memory, const Processor& processor = {})
      : arena(memory), device(processor.device), gpu(processor.gpu) {}

  Arena& arena;  // activations and scratch of the step, in the memory of the device
  Device device;
  Gpu* gpu;

  // In the planning pass an op checks its arguments, takes its scratch and returns.
  bool planning() const { return arena.planning(); }
  GpuStream stream() const { return gpu->stream(); }
};

}  // namespace kata
