// Repeated-key overwrite: as MQAR (mqar.h), but `rewritten` of the m keys are bound `rewrites` more times,
// each time to another value. The right answer is the value that a key was bound to last.
//
//   position   0  1  2  3 ... 2m ...         | 2n ...                  L-1
//   input      k1 v1 k2 v2 ... k2 v2' k1 v1' | 0 ... k2 0 ... k1 0 ...    0      n = m + rewrites * rewritten
//   target                                   |       v2'      v1'
//
// Keys are distinct ids of 1 .. V/2-1, all n values of a row distinct ids of V/2 .. V-1, so that every answer
// tells which binding it comes from. The question on key p is at 2n + 2 slot_p, slots drawn as in MQAR; every
// key is asked for once.
//
// Layouts:
//   block        the m first bindings, then `rewrites` rounds in each of which every rewritten key is bound
//                once, in a random order
//   interleaved  all n bindings in a random order
//   zoology      equal to zoology's `forgetting_mqar` with zero filler: one round of rewrites (rewrites = 1).
//                New values are drawn to differ from the first value of the pair in the same column, which
//                need not be the rewritten one: values may repeat, even the old one of the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/example_set.h"
#include "tasks/numpy_random.h"

namespace kata {

struct OverwriteSpec {
  int64_t length = 64;  // L, tokens of a row
  int64_t pairs = 4;    // m
  int64_t examples = 1000;
  int64_t vocab = 8192;   // V
  uint32_t seed = 0;      // of NumPy
  int64_t rewrites = 1;   // bindings of a rewritten key after its first
  int64_t rewritten = 1;  // keys that are rewritten, at most m
  std::string layout = "block";

  int64_t bindings() const { return pairs + rewrites * rewritten; }  // n
};

// 8 n + 8 m bytes a row; rows are rendered when asked for.
class OverwriteData : public ExampleSet {
 public:
  // ExitCode::usage when the spec cannot be met: L odd, 2 n + 2 m > L, V <= L, rewritten > m, no example, an
  // unknown layout, zoology with rewrites other than 1.
  explicit OverwriteData(const OverwriteSpec& spec);

  void render(int64_t row, int32_t* inputs, int32_t* targets) const override;
  void questions(int64_t row, std::vector<Question>& questions) const override;

 private:
  void draw_order(NumpyRandom& random);
  void draw_as_zoology(NumpyRandom& random);

  OverwriteSpec spec_;
  std::vector<int32_t> keys_, slots_;    // [examples, pairs]
  std::vector<int32_t> order_, values_;  // [examples, bindings]: index of the key and its value
};

// The same refusals without the work of generating.
void check_overwrite(const OverwriteSpec& spec);

}  // namespace kata
