#include "base/arena.h"

#include <algorithm>
#include <cstdlib>

namespace kata {

void Arena::Free::operator()(void* p) const {
  std::free(p);
}

Arena::Arena(size_t capacity_bytes, Memory memory) : planning_(false) {
  capacity_ = (capacity_bytes + alignment - 1) / alignment * alignment;
  const size_t bytes = std::max(capacity_, alignment);
  if (memory == Memory::gpu) {
    device_block_ = device_memory(bytes);
    base_ = static_cast<char*>(device_block_.get());
  } else {
    block_.reset(std::aligned_alloc(alignment, bytes));
    base_ = static_cast<char*>(block_.get());
  }
  if (base_ == nullptr)
    fail(ExitCode::device, "out of memory{}: the plan needs {}; lower {} or set train.recompute: block",
         memory == Memory::gpu ? " on the GPU" : "", human_bytes(capacity_),
         memory == Memory::gpu ? "train.micro_batch" : "train.batch_tokens");
  live_.reserve(4096);  // so that a step itself never allocates
}

Tensor Arena::take(const char* name, DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (!planning_ && used_ + rounded > capacity_)
    fail(ExitCode::device, "out of memory: {} needs {} and {} of {} are in use:\n{}", name,
         human_bytes(bytes), human_bytes(used_), human_bytes(capacity_), table());
  void* data = planning_ ? nullptr : base_ + used_;
  used_ += rounded;
  live_.push_back({name, rounded});
  if (used_ > peak_) {
    peak_ = used_;
    if (planning_) at_peak_ = live_;
  }
  return Tensor(data, dtype, shape);
}

std::string Arena::table() const {
  std::map<std::string, size_t> sums;
  for (const Allocation& a : planning_ ? at_peak_ : live_) sums[a.name] += a.bytes;
  std::vector<std::pair<std::string, size_t>> rows(sums.begin(), sums.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, bytes] : rows) text += fmt::format("  {:<32} {:>12}\n", name, human_bytes(bytes));
  return text;
}

std::string human_bytes(size_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace kata
