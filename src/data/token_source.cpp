#include "data/token_source.h"

#include <algorithm>

#include "base/parallel.h"
#include "data/permutation.h"

namespace kata {

namespace {

BatchShape checked(int64_t rows, int64_t length) {
  KATA_CHECK(rows > 0 && length > 0 && rows <= (int64_t{1} << 40) / length, "{} rows of {} tokens", rows,
             length);
  return {rows, length};
}

void resize(Batch& batch, const BatchShape& shape) {
  batch.shape = shape;
  batch.inputs.resize(static_cast<size_t>(shape.tokens()));
  batch.targets.resize(batch.inputs.size());
}

// One window into a row: all inputs and targets that the stream has from `begin` on.
void fill_row(const TokenStream& stream, int64_t begin, Batch& batch, int64_t row) {
  const int64_t length = batch.shape.length;
  const int64_t scored = std::min(length, stream.tokens() - 1 - begin);
  int32_t* inputs = batch.inputs.data() + row * length;
  int32_t* targets = batch.targets.data() + row * length;
  stream.read(begin, scored, inputs);
  stream.read(begin + scored, 1, targets + scored - 1);
  std::copy(inputs + 1, inputs + scored, targets);
  std::fill(inputs + scored, inputs + length, 0);
  std::fill(targets + scored, targets + length, kNoTarget);
}

// A document runs from one document token to the next; the first one of a row may have begun before it.
void mark_documents(Batch& batch, int64_t document_token) {
  batch.starts.clear();
  if (document_token < 0) return;
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    const auto t = static_cast<int32_t>(i % static_cast<size_t>(batch.shape.length));
    const bool start = t == 0 || batch.inputs[i] == document_token;
    batch.starts.push_back(start ? t : batch.starts.back());
  }
}

}  // namespace

TokenSource::TokenSource(const std::vector<std::string>& paths, int64_t rows, int64_t length, uint64_t seed,
                         int64_t vocab, int64_t document_token)
    : stream_(paths, vocab),
      document_token_(document_token),
      shape_(checked(rows, length)),
      seed_(seed),
      windows_((stream_.tokens() - 1) / length) {
  if (windows_ == 0)
    fail(ExitCode::data,
         "{}: {} tokens, expected at least {} for one row of {}; give more text or shorten the rows",
         stream_.description(), stream_.tokens(), length + 1, length);
}

int64_t TokenSource::steps_per_epoch() const {
  return ceil_div(windows_, shape_.rows);
}

void TokenSource::fill(int64_t step, Batch& batch) {
  KATA_CHECK(step >= 0 && step <= (int64_t{1} << 62) / shape_.rows - 1, "step = {}", step);
  resize(batch, shape_);
  for (int64_t row = 0; row < shape_.rows;) {
    const int64_t sample = step * shape_.rows + row;
    const int64_t epoch = sample / windows_;
    const Permutation order(static_cast<uint64_t>(windows_), seed_, static_cast<uint64_t>(epoch));
    const int64_t end = std::min(shape_.rows, row + (epoch + 1) * windows_ - sample);  // of this epoch's rows
    for (int64_t index = sample % windows_; row < end; ++row, ++index)
      fill_row(stream_, static_cast<int64_t>(order(static_cast<uint64_t>(index))) * shape_.length, batch,
               row);
  }
  mark_documents(batch, document_token_);
}

ValidationSource::ValidationSource(const std::vector<std::string>& paths, int64_t rows, int64_t length,
                                   int64_t vocab, int64_t document_token)
    : stream_(paths, vocab),
      document_token_(document_token),
      full_(checked(rows, length)),
      windows_(ceil_div(stream_.tokens() - 1, length)) {
  if (windows_ == 0)
    fail(ExitCode::data, "{}: 1 token, expected at least 2 to predict one from the other; give more text",
         stream_.description());
}

BatchShape ValidationSource::shape(int64_t step) const {
  KATA_CHECK(step >= 0, "step = {}", step);
  const int64_t begin = step % steps_per_epoch() * full_.rows;
  return {std::min(full_.rows, windows_ - begin), full_.length};
}

int64_t ValidationSource::steps_per_epoch() const {
  return ceil_div(windows_, full_.rows);
}

void ValidationSource::fill(int64_t step, Batch& batch) {
  resize(batch, shape(step));
  const int64_t begin = step % steps_per_epoch() * full_.rows;
  for (int64_t row = 0; row < batch.shape.rows; ++row)
    fill_row(stream_, (begin + row) * full_.length, batch, row);
  mark_documents(batch, document_token_);
}

}  // namespace kata
