// What every op is handed: where it runs and where its memory comes from.
#pragma once

#include "base/arena.h"

namespace kata {

enum class Device { cpu, cuda };

struct Context {
  Arena& arena;  // activations and scratch of the step
  Device device = Device::cpu;

  // In the planning pass an op checks its arguments, takes its scratch and returns.
  bool planning() const { return arena.planning(); }
};

}  // namespace kata
