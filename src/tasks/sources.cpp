#include "tasks/sources.h"

#include "data/advice.h"
#include "data/token_source.h"
#include "data/tokenizer.h"
#include "tasks/example_source.h"

namespace kata {

namespace {

int64_t document_token(const RunConfig& config) {
  const int64_t token = config.data.document_token;
  if (token >= config.model.vocab)
    fail(ExitCode::usage, "data.document_token: {} with a vocabulary of {}; expected an id below it, or -1",
         token, config.model.vocab);
  return token;
}

}  // namespace

std::unique_ptr<BatchSource> make_train_source(const RunConfig& config) {
  const TrainConfig& train = config.train;
  if (config.data.task) return std::make_unique<ExampleSource>(train_specs(*config.data.task), train.rows());
  return std::make_unique<TokenSource>(expand_data_patterns(config.data.train), train.rows(), train.sequence,
                                       train.seed, config.model.vocab, document_token(config));
}

std::unique_ptr<BatchSource> make_validation_source(const RunConfig& config) {
  const TrainConfig& train = config.train;
  if (config.data.task) {
    const TaskConfig& task = *config.data.task;
    return std::make_unique<ExampleSource>(test_specs(task, validation_grid(task)), train.rows());
  }
  if (config.data.validation.empty()) return nullptr;
  return std::make_unique<ValidationSource>(expand_data_patterns(config.data.validation), train.rows(),
                                            train.sequence, config.model.vocab, document_token(config));
}

namespace {

// Batches of `rows` examples out of `examples`, and the shorter one at the end.
void add_shapes(std::vector<BatchShape>& shapes, int64_t rows, int64_t examples, int64_t length) {
  if (examples >= rows) shapes.push_back({rows, length});
  if (examples % rows > 0) shapes.push_back({examples % rows, length});
}

}  // namespace

std::vector<BatchShape> train_shapes(const RunConfig& config) {
  const int64_t rows = config.train.rows();
  if (!config.data.task) return {{rows, config.train.sequence}};
  std::vector<BatchShape> shapes;
  for (const auto& segment : config.data.task->segments)
    add_shapes(shapes, rows, segment.examples, segment.length);
  return shapes;
}

std::vector<BatchShape> validation_shapes(const RunConfig& config) {
  const int64_t rows = config.train.rows();
  if (!config.data.task) return {{rows, config.train.sequence}};
  std::vector<BatchShape> shapes;
  for (const auto& segment : config.data.task->segments)
    add_shapes(shapes, rows, config.data.task->test_examples, segment.length);
  return shapes;
}

int64_t resolve_vocab(const RunConfig& config) {
  if (config.model.vocab > 0) return config.model.vocab;
  if (config.data.task) return config.data.task->vocab;
  return make_tokenizer(config.data.tokenizer)->vocab();
}

}  // namespace kata
