// Batches of text: windows of T tokens out of shards, in random order for training, in their own order for
// validation.
//
// The shards are one stream. Window i has the inputs iT .. iT + T - 1 and the targets iT + 1 .. iT + T, so
// neighbours share one token and every token but the first is a target once.
#pragma once

#include "data/batch.h"
#include "data/token_stream.h"

namespace kata {

// Sample g of the run is window order_e(g mod W) of epoch e = g / W, where W = floor((tokens - 1) / T) and
// order_e is a Permutation of (seed, e); step s has samples s * rows .. s * rows + rows - 1, so batches run
// across epochs. Up to T - 1 tokens at the end of the stream are not used.
class TokenSource : public BatchSource {
 public:
  // document_token: the id that begins a document, for Batch::starts; -1 = none.
  // ExitCode::data as TokenStream and where there are fewer than length + 1 tokens.
  TokenSource(const std::vector<std::string>& paths, int64_t rows, int64_t length, uint64_t seed,
              int64_t vocab, int64_t document_token = -1);

  BatchShape shape(int64_t) const override { return shape_; }
  BatchShape largest() const override { return shape_; }
  int64_t vocab() const override { return stream_.vocab(); }
  void fill(int64_t step, Batch& batch) override;
  int64_t steps_per_epoch() const override;

  int64_t tokens() const { return stream_.tokens(); }
  int64_t windows() const { return windows_; }

 private:
  TokenStream stream_;
  int64_t document_token_;
  BatchShape shape_;
  uint64_t seed_;
  int64_t windows_;
};

// All windows once, in order; the last one is short and filled up with unscored zeros, so that an epoch
// scores every token but the first exactly once. The last batch has the rows that are left. Step s is step s
// mod steps_per_epoch.
class ValidationSource : public BatchSource {
 public:
  // ExitCode::data as TokenStream and where there are fewer than 2 tokens.
  ValidationSource(const std::vector<std::string>& paths, int64_t rows, int64_t length, int64_t vocab,
                   int64_t document_token = -1);

  BatchShape shape(int64_t step) const override;
  BatchShape largest() const override { return shape(0); }
  int64_t vocab() const override { return stream_.vocab(); }
  void fill(int64_t step, Batch& batch) override;
  int64_t steps_per_epoch() const override;

  int64_t scored_tokens() const { return stream_.tokens() - 1; }  // of an epoch

 private:
  TokenStream stream_;
  int64_t document_token_;
  BatchShape full_;
  int64_t windows_;
};

}  // namespace kata
