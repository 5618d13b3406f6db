// One function per op; bench_cases() lists them.
#pragma once

#include "bench/bench.h"

namespace kata {

void bench_rmsnorm(Bench& bench);

}  // namespace kata
