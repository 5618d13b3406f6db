// All that a trainer knows of data: batches of token ids, and a source that makes the batch of any step.
#pragma once

#include <cstdint>
#include <vector>

namespace kata {

struct BatchShape {
  int64_t rows = 0;
  int64_t length = 0;  // tokens of one row

  int64_t tokens() const { return rows * length; }
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

// A target that is not scored.
inline constexpr int32_t kNoTarget = -1;

struct Batch {
  BatchShape shape;
  std::vector<int32_t> inputs;       // [rows, length]
  std::vector<int32_t> targets;      // [rows, length], the id to predict at that position, or kNoTarget
  std::vector<int32_t> starts = {};  // [rows, length], place of the first token of each token's document;
                                     // empty: one document a row
};

// Batches by step. Everything is a pure function of what the source was made of (files, sizes, seed) and of
// the step, so a resumed run sees the batches that an uninterrupted one sees.
class BatchSource {
 public:
  virtual ~BatchSource();

  virtual BatchShape shape(int64_t step) const = 0;
  // The shape with the most tokens that any step has.
  virtual BatchShape largest() const = 0;
  // Every input is in [0, vocab()), every target too or is kNoTarget.
  virtual int64_t vocab() const = 0;
  // Makes the batch of step >= 0; the steps may be asked for in any order. The vectors of batch are reused.
  virtual void fill(int64_t step, Batch& batch) = 0;
  // Steps in which every sample is seen about once, at least 1.
  virtual int64_t steps_per_epoch() const = 0;
};

}  // namespace kata
