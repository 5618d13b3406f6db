#include "base/parallel.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <vector>

namespace kata {
namespace {

TEST(Parallel, EveryUnitRunsOnceAtAnyThreadCount) {
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    for (const int64_t n : {0, 1, 2, 1000}) {
      std::vector<int> runs(static_cast<size_t>(n));
      parallel_for(n, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(n), 1))
          << n << " units, " << threads << " threads";
    }
  }
}

TEST(Parallel, BlocksTileTheRangeWhateverTheThreadCount) {
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    std::vector<int64_t> ends(4);
    parallel_blocks(100, 30,
                    [&](int64_t begin, int64_t end) { ends[static_cast<size_t>(begin / 30)] = end; });
    EXPECT_EQ(ends, (std::vector<int64_t>{30, 60, 90, 100}));
  }
}

TEST(Parallel, AnExceptionOfAUnitArrives) {
  for (const int threads : {1, 2}) {
    set_thread_count(threads);
    EXPECT_THROW(parallel_for(100,
                              [](int64_t i) {
                                if (i == 57) throw std::runtime_error("unit");
                              }),
                 std::runtime_error);
  }
}

}  // namespace
}  // namespace kata
