#include "bench/cases.h"

namespace kata {

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> cases = {
      {"rmsnorm", bench_rmsnorm},
  };
  return cases;
}

}  // namespace kata
