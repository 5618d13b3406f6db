#include "bench/bench.h"

#include <algorithm>
#include <chrono>

#include "bench/data.h"

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

// The same with the repetitions of a batch in one graph.
double median_gpu_seconds(const Gpu& gpu, const std::function<void()>& body) {
  const auto waited = [&](const std::function<void()>& queued) {
    return seconds_of([&] {
      queued();
      gpu.synchronise();
    });
  };
  body();
  gpu.synchronise();
  const double once = waited(body);
  const int repeats = std::clamp(static_cast<int>(0.02 / std::max(once, 1e-7)), 1, 200);
  const GpuGraph graph(gpu, [&] {
    for (int i = 0; i < repeats; ++i) body();
  });
  std::vector<double> times;
  for (int batch = 0; batch < 6; ++batch) times.push_back(waited([&] { graph.launch(); }) / repeats);
  times.erase(times.begin());  // the first launch of a graph uploads it
  std::nth_element(times.begin(), times.begin() + 2, times.end());
  return times[2];
}

}  // namespace

void Bench::run(const std::string& name, const Work& work, const std::function<void(Context&)>& body) {
  const Processor& processor = bench_target().processor;
  Arena plan;
  Context planning(plan, {processor.device, nullptr});
  body(planning);
  Arena arena(plan.peak(), processor.memory());
  Context ctx(arena, processor);
  const double seconds = bench_target().gpu() ? median_gpu_seconds(*processor.gpu, [&] { body(ctx); })
                                              : median_seconds([&] { body(ctx); });
  const double floor = std::max(work.flops / matrix_flops_, work.bytes / copy_bytes_);
  rows_.push_back({op_, name, seconds, work, floor / seconds});
}

}  // namespace kata
