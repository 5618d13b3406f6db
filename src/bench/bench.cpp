#include "bench/bench.h"

#include <algorithm>
#include <chrono>

namespace kata {

namespace {

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Median of 5 batches after a warm-up, each long enough (20 ms) for the clock.
double median_seconds(const std::function<void()>& body) {
  body();
  const double once = seconds_of(body);
  const int repeats = once >= 0.02 ? 1 : static_cast<int>(0.02 / std::max(once, 1e-7)) + 1;
  std::vector<double> times;
  for (int batch = 0; batch < 5; ++batch)
    times.push_back(seconds_of([&] {
                      for (int i = 0; i < repeats; ++i) body();
                    }) /
                    repeats);
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2];
}

}  // namespace

void Bench::run(const std::string& name, const Work& work, const std::function<void(Context&)>& body) {
  Arena plan;
  Context planning{plan};
  body(planning);
  Arena arena(plan.peak());
  Context ctx{arena};
  const double seconds = median_seconds([&] { body(ctx); });
  const double floor = std::max(work.flops / matrix_flops_, work.bytes / copy_bytes_);
  rows_.push_back({op_, name, seconds, work, floor / seconds});
}

}  // namespace kata
