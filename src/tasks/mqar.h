// Multi-query associative recall: m key-value pairs, then each key once more; the model answers with its
// value.
//
//   position   0  1  2  3 ... 2m-2 2m-1 | 2m ...                              L-1
//   input      k1 v1 k2 v2 ... km   vm  | 0 ... k3 0 ... k1 0 ...               0
//   target                              |       v3       v1
//
// Keys are distinct ids of 1 .. V/2-1, values distinct ids of V/2 .. V-1, 0 fills. The query of pair p is at
// 2m + 2 slot_p, its slot drawn with weight i^(a-1), a = 0.01, so most questions come early. Equal to the bit
// to zoology's `multiquery_ar` with zero filler (Arora et al., 2023, arXiv 2312.04927).
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/example_set.h"

namespace kata {

struct MqarSpec {
  int64_t length = 64;  // L, tokens of a row
  int64_t pairs = 4;    // m
  int64_t examples = 1000;
  int64_t vocab = 8192;  // V
  uint32_t seed = 0;     // of NumPy
};

// What differs from row to row; rows are rendered when asked for. 12 m bytes a row instead of 8 L.
class MqarData : public ExampleSet {
 public:
  // ExitCode::usage when the spec cannot be met: L odd, 4m > L, V <= L, m > V/2 - 1, no example.
  explicit MqarData(const MqarSpec& spec);

  void render(int64_t row, int32_t* inputs, int32_t* targets) const override;
  void questions(int64_t row, std::vector<Question>& questions) const override;

 private:
  MqarSpec spec_;
  std::vector<int32_t> keys_, values_, slots_;  // [examples, pairs]
};

// The same refusals without the work of generating.
void check_mqar(const MqarSpec& spec);

struct SegmentSeeds {
  std::vector<uint32_t> train, test;
};
// The NumPy seeds of the segments of a data set: train below 2^31, test from 2^31 on.
SegmentSeeds segment_seeds(uint32_t seed, int64_t train, int64_t test);

}  // namespace kata
