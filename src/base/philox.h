// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
//
// A draw is a pure function of (seed, stream, index), so nothing needs a saved generator state: resuming or
// changing the number of threads changes no number.
#pragma once

#include <array>
#include <cstdint>

namespace kata {

class Philox {
 public:
  // `stream` separates uses of one seed (initialisation, data order, sampling, ...).
  Philox(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  std::array<uint32_t, 4> block(uint64_t index) const;
  uint64_t bits(uint64_t index) const;   // 64 random bits
  double uniform(uint64_t index) const;  // in [0, 1), 53 bits
  double normal(uint64_t index) const;   // mean 0, variance 1 (Box-Muller on one block)
  // A uniform integer in [0, n), n > 0, without modulo bias beyond 2^-64.
  uint64_t below(uint64_t index, uint64_t n) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
};

// Streams of the run's seed, so that no two uses share numbers.
enum Stream : uint64_t {
  stream_init = 1,
  stream_data = 2,
  stream_sampling = 3,
  stream_task = 4,
  stream_test = 5
};

}  // namespace kata
