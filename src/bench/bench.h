// Timing of ops on this machine against the rates that the machine was measured to have.
//
// A case states the work of one call (operations and bytes that no implementation can avoid); its floor is
// max(flops / matrix rate, bytes / copy bandwidth), both measured first, and "roofline" is floor / median
// time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/context.h"

namespace kata {

struct Work {
  double flops = 0;
  double bytes = 0;
  double tokens = 0;  // 0: no time-per-token column
};

struct BenchRow {
  std::string op, name;
  double seconds = 0;  // median
  Work work;
  double roofline = 0;  // fraction of the floor, 1 = at the floor
};

class Bench {
 public:
  explicit Bench(std::string op, double matrix_flops, double copy_bytes)
      : op_(std::move(op)), matrix_flops_(matrix_flops), copy_bytes_(copy_bytes) {}

  // body(ctx) is planned once, then timed: median of 5 batches after a warm-up, each at least 20 ms long. On
  // a GPU a batch is one recorded graph, so that launches cost what they cost inside a training step.
  void run(const std::string& name, const Work& work, const std::function<void(Context&)>& body);
  const std::vector<BenchRow>& rows() const { return rows_; }

 private:
  std::string op_;
  double matrix_flops_, copy_bytes_;
  std::vector<BenchRow> rows_;
};

struct MachineRates {
  double matrix_flops = 0;  // large matrix product in the element type, operations a second, whole machine
  double copy_bytes = 0;    // large copy, bytes read plus written a second, likewise
};
MachineRates measure_rates();

// The cases, one function per op, found by the op's name in src/bench/<op>.cpp.
struct BenchCase {
  const char* op;
  void (*function)(Bench&);
};
const std::vector<BenchCase>& bench_cases();

}  // namespace kata
