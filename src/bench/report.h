// What katabench prints and writes.
#pragma once

#include <string>

#include "bench/bench.h"

namespace kata {

// One line per case: op, case, median time, GFLOP/s, GB/s, ns per token, fraction of the roofline.
std::string bench_table(const MachineRates& rates, const std::vector<BenchRow>& rows);
// The same as one JSON object: machine and rates, then a list of rows in SI units.
std::string bench_json(const MachineRates& rates, const std::vector<BenchRow>& rows);

}  // namespace kata
