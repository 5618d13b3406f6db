// From a run's config to its batches: token files or a synthetic task.
#pragma once

#include <memory>
#include <vector>

#include "config/run_config.h"
#include "data/batch.h"

namespace kata {

// Batches of train.batch_tokens tokens: rows of train.sequence tokens from data.train, or examples of
// data.task (batch_tokens / sequence of them a step, whatever their length). The source's vocabulary is
// model.vocab.
std::unique_ptr<BatchSource> make_train_source(const RunConfig& config);

// Likewise from data.validation, or held-out examples of the task; null where the config names none.
std::unique_ptr<BatchSource> make_validation_source(const RunConfig& config);

// The batch shapes of a run, known from its config alone (no file is opened): what its memory is planned for.
std::vector<BatchShape> train_shapes(const RunConfig& config);
std::vector<BatchShape> validation_shapes(const RunConfig& config);

// model.vocab where the config gives it, else the task's or the tokenizer's.
int64_t resolve_vocab(const RunConfig& config);

}  // namespace kata
