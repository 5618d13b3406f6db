// Memory in one block, handed out like a stack and planned before it is allocated.
//
// A step is run twice through the same code: first on a planning arena, whose tensors are null and whose only
// effect is to count, then on an arena of exactly the planned size. Each allocation has a name; running out
// prints the table of what was live. Nothing is allocated from the system inside a step.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/gpu.h"
#include "base/tensor.h"

namespace kata {

class Arena {
 public:
  static constexpr size_t alignment = 256;
  enum class Memory { host, gpu };  // gpu: of the current CUDA device

  Arena() = default;  // planning: counts, returns null tensors
  // Real: ExitCode::device when the system, or the GPU, has no such block.
  explicit Arena(size_t capacity_bytes, Memory memory = Memory::host);

  // An uninitialised tensor that lives until the scope around it ends. `name` must outlive the arena (a
  // literal). ExitCode::device with the table of live allocations when the capacity is exceeded.
  Tensor take(const char* name, DType dtype, const Shape& shape);

  bool planning() const { return planning_; }
  size_t used() const { return used_; }
  size_t peak() const { return peak_; }  // largest `used` so far
  size_t capacity() const { return capacity_; }
  std::string table() const;  // one line per name at the peak (planning) or now (real), largest first

  // Everything taken inside the scope is released at its end.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), used_(arena.used_), live_(arena.live_.size()) {}
    ~Scope() {
      arena_.used_ = used_;
      arena_.live_.resize(live_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t used_;
    size_t live_;
  };

 private:
  struct Allocation {
    const char* name = nullptr;
    size_t bytes = 0;
  };
  struct Free {
    void operator()(void* p) const;
  };

  std::unique_ptr<void, Free> block_;
  std::unique_ptr<void, FreeDevice> device_block_;
  char* base_ = nullptr;  // of either
  bool planning_ = true;
  size_t capacity_ = 0;
  size_t used_ = 0;
  size_t peak_ = 0;
  std::vector<Allocation> live_;
  std::vector<Allocation> at_peak_;  // planning only
};

std::string human_bytes(size_t bytes);  // "1.25 GiB"

}  // namespace kata
