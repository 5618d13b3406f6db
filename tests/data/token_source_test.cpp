#include "data/token_source.h"

#include <algorithm>
#include <fcntl.h>
#include <numeric>
#include <unistd.h>

#include "support/errors.h"
#include "support/temp_dir.h"

namespace kata {
namespace {

using test::fails_with;
using test::TempDir;

// Shards that hold 0, 1, 2, ... so that a token is its own position.
class TokenSources : public ::testing::Test {
 protected:
  std::vector<std::string> counting(const std::vector<int64_t>& sizes) {
    std::vector<std::string> paths;
    int32_t next = 0;
    for (const int64_t size : sizes) {
      std::vector<int32_t> tokens(static_cast<size_t>(size));
      std::iota(tokens.begin(), tokens.end(), next);
      next += static_cast<int32_t>(size);
      paths.push_back(dir / fmt::format("{:06}.bin", paths.size()));
      write_shard(paths.back(), tokens, vocab);
    }
    return paths;
  }
  static constexpr int64_t vocab = 30000;
  TempDir dir;
};

struct Sizes {
  std::vector<int64_t> shards;
  int64_t rows, length;
};
class Epochs : public TokenSources, public ::testing::WithParamInterface<Sizes> {};

// Rows of a run of samples, as the position of their first token; each row is checked to be a whole window.
std::vector<int64_t> window_starts(TokenSource& source, int64_t first_step, int64_t steps) {
  std::vector<int64_t> starts;
  Batch batch;
  for (int64_t step = first_step; step < first_step + steps; ++step) {
    source.fill(step, batch);
    EXPECT_EQ(batch.shape, source.shape(step));
    const int64_t length = batch.shape.length;
    EXPECT_EQ(static_cast<int64_t>(batch.inputs.size()), batch.shape.tokens());
    EXPECT_EQ(static_cast<int64_t>(batch.targets.size()), batch.shape.tokens());
    for (int64_t row = 0; row < batch.shape.rows; ++row) {
      const int32_t* inputs = batch.inputs.data() + row * length;
      const int32_t* targets = batch.targets.data() + row * length;
      starts.push_back(inputs[0]);
      for (int64_t t = 0; t < length; ++t) {
        EXPECT_EQ(inputs[t], inputs[0] + t);
        EXPECT_EQ(targets[t], inputs[0] + t + 1);
      }
    }
  }
  return starts;
}

TEST_P(Epochs, EachTokenIsATargetOnceAnEpoch) {
  const auto& [shards, rows, length] = GetParam();
  TokenSource source(counting(shards), rows, length, 42, vocab);
  const int64_t total = std::accumulate(shards.begin(), shards.end(), int64_t{0});
  const int64_t windows = (total - 1) / length;
  EXPECT_EQ(source.tokens(), total);
  EXPECT_EQ(source.windows(), windows);
  EXPECT_EQ(source.steps_per_epoch(), (windows + rows - 1) / rows);
  EXPECT_EQ(source.largest(), (BatchShape{rows, length}));

  const int64_t epochs = 3;
  auto starts = window_starts(source, 0, (epochs * windows + rows - 1) / rows);
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<int64_t> order(starts.begin() + epoch * windows, starts.begin() + (epoch + 1) * windows);
    orders.push_back(order);
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < windows; ++i)
      EXPECT_EQ(order[static_cast<size_t>(i)], i * length) << "epoch " << epoch;
  }
  if (windows < 20) return;
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
}

TEST_P(Epochs, ValidationScoresEveryTokenButTheFirstOnce) {
  const auto& [shards, rows, length] = GetParam();
  ValidationSource source(counting(shards), rows, length, vocab);
  const int64_t total = std::accumulate(shards.begin(), shards.end(), int64_t{0});
  EXPECT_EQ(source.scored_tokens(), total - 1);
  EXPECT_EQ(source.largest(), source.shape(0));
  int64_t next = 1;  // targets come in order
  Batch batch;
  for (int64_t step = 0; step < source.steps_per_epoch(); ++step) {
    source.fill(step, batch);
    EXPECT_EQ(batch.shape, source.shape(step));
    EXPECT_EQ(batch.shape.length, length);
    EXPECT_LE(batch.shape.rows, rows);
    EXPECT_GE(batch.shape.rows, 1);
    ASSERT_EQ(static_cast<int64_t>(batch.targets.size()), batch.shape.tokens());
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (next == total) {
        EXPECT_EQ(batch.targets[i], kNoTarget);
        EXPECT_EQ(batch.inputs[i], 0);
        continue;
      }
      EXPECT_EQ(batch.targets[i], next);
      EXPECT_EQ(batch.inputs[i], next - 1);
      ++next;
    }
  }
  EXPECT_EQ(next, total);
  Batch again;
  source.fill(0, batch);
  source.fill(source.steps_per_epoch(), again);
  EXPECT_EQ(batch.inputs, again.inputs);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Epochs,
                         ::testing::Values(Sizes{{2}, 1, 1}, Sizes{{1, 1}, 3, 1}, Sizes{{9}, 2, 4},
                                           Sizes{{1000}, 4, 7}, Sizes{{333, 1, 200, 466}, 5, 10},
                                           Sizes{{1, 1, 1, 1, 1, 500}, 3, 4}, Sizes{{64}, 100, 16},
                                           Sizes{{257}, 4, 64}));

TEST_F(TokenSources, BatchesArePureFunctionsOfTheStep) {
  const auto paths = counting({500, 300, 250});
  TokenSource forward(paths, 4, 16, 1, vocab), backward(paths, 4, 16, 1, vocab),
      other(paths, 4, 16, 2, vocab);
  std::vector<Batch> batches(50);
  for (int64_t step = 0; step < 50; ++step) forward.fill(step, batches[static_cast<size_t>(step)]);
  int64_t different = 0;
  Batch batch;
  for (int64_t step = 49; step >= 0; --step) {
    backward.fill(step, batch);
    EXPECT_EQ(batch.inputs, batches[static_cast<size_t>(step)].inputs) << step;
    EXPECT_EQ(batch.targets, batches[static_cast<size_t>(step)].targets) << step;
    other.fill(step, batch);
    different += batch.inputs != batches[static_cast<size_t>(step)].inputs;
  }
  EXPECT_GT(different, 45);  // the seed matters
}

TEST_F(TokenSources, SamplesDoNotDependOnTheBatchSize) {
  const auto paths = counting({700});
  TokenSource one(paths, 1, 16, 1, vocab), six(paths, 6, 16, 1, vocab);
  EXPECT_EQ(window_starts(one, 0, 180), window_starts(six, 0, 30));
}

TEST_F(TokenSources, FarStepsWork) {
  TokenSource source(counting({700}), 8, 16, 1, vocab);
  EXPECT_EQ(window_starts(source, int64_t{1} << 50, 3).size(), 24u);
}

TEST_F(TokenSources, TooFewTokens) {
  const auto paths = counting({4, 4});
  EXPECT_TRUE(fails_with(ExitCode::data, {paths[0], "1 more file", "8 tokens", "at least 9", "shorten"},
                         [&] { TokenSource(paths, 1, 8, 1, vocab); }));
  EXPECT_NO_THROW(TokenSource(paths, 1, 7, 1, vocab));
  const auto single = counting({1});
  EXPECT_TRUE(
      fails_with(ExitCode::data, {single[0], "at least 2"}, [&] { ValidationSource(single, 1, 8, vocab); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {"no token shards"}, [&] { TokenSource({}, 1, 8, 1, vocab); }));
}

TEST_F(TokenSources, AnIdOutsideTheVocabularyIsFoundAtLoad) {
  const auto paths = counting({100, 100});
  EXPECT_TRUE(fails_with(ExitCode::data, {paths[1], "token 50", "id 150", "vocabulary of 150"},
                         [&] { TokenSource(paths, 1, 8, 1, 150); }));
  EXPECT_TRUE(fails_with(ExitCode::data, {paths[1]}, [&] { ValidationSource(paths, 1, 8, 150); }));
  EXPECT_NO_THROW(TokenSource(paths, 1, 8, 1, 200));
}

TEST_F(TokenSources, AFileChangedUnderneathIsFound) {
  const auto paths = counting({100});
  TokenSource source(paths, 4, 8, 1, 100);
  {
    const int file = ::open(paths[0].c_str(), O_WRONLY);
    const std::vector<uint16_t> wrong(100, 60000);
    ASSERT_EQ(::pwrite(file, wrong.data(), 200, 1024), 200);
    ::close(file);
  }
  Batch batch;
  EXPECT_TRUE(fails_with(ExitCode::data, {paths[0], "60000"}, [&] { source.fill(0, batch); }));
}

// Where documents begin: token 9 begins one.
class DocumentStarts : public TokenSources {
 protected:
  static constexpr int64_t length = 5;
  std::vector<std::string> shard(const std::vector<int32_t>& tokens) {
    write_shard(dir / "documents.bin", tokens, vocab);
    return {dir / "documents.bin"};
  }
  // A start in a row's middle; at its first token; consecutive ones and one at the last token; none.
  const std::vector<int32_t> tokens = {1, 2, 9, 3, 4, 9, 5, 6, 7, 8, 1, 9, 9, 2, 9, 3, 4, 5, 6, 7, 8};
  const std::vector<std::vector<int32_t>> expected = {
      {0, 0, 2, 2, 2}, {0, 0, 0, 0, 0}, {0, 1, 2, 2, 4}, {0, 0, 0, 0, 0}};
};

TEST_F(DocumentStarts, OfValidation) {
  ValidationSource source(shard(tokens), 3, length, vocab, 9);
  Batch batch;
  source.fill(0, batch);
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 0, 2, 2, 2, 0, 0, 0, 0, 0, 0, 1, 2, 2, 4}));
  source.fill(1, batch);  // the one row that is left
  EXPECT_EQ(batch.starts, expected[3]);
}

TEST_F(DocumentStarts, OfTrainingFollowTheRows) {
  TokenSource source(shard(tokens), 3, length, 1, vocab, 9);
  ASSERT_EQ(source.windows(), 4);
  Batch batch;
  std::vector<int> seen(4, 0);
  for (int64_t step = 0; step < 4; ++step) {  // 3 epochs, batches across their ends
    source.fill(step, batch);
    ASSERT_EQ(batch.starts.size(), 15u);
    for (size_t row = 0; row < 3; ++row) {
      const auto at = [&](const std::vector<int32_t>& x) {
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row * length);
        return std::vector<int32_t>(begin, begin + length);
      };
      size_t window = 0;
      while (window < 4 && !std::equal(tokens.begin() + static_cast<std::ptrdiff_t>(window * length),
                                       tokens.begin() + static_cast<std::ptrdiff_t>((window + 1) * length),
                                       at(batch.inputs).begin()))
        ++window;
      ASSERT_LT(window, 4u);
      EXPECT_EQ(at(batch.starts), expected[window]) << "window " << window;
      ++seen[window];
    }
  }
  EXPECT_EQ(seen, std::vector<int>(4, 3));
}

TEST_F(DocumentStarts, NoneWithoutADocumentToken) {
  const auto paths = shard(tokens);
  TokenSource training(paths, 3, length, 1, vocab), with(paths, 3, length, 1, vocab, 9);
  ValidationSource validation(paths, 3, length, vocab, -1);
  Batch batch, marked;
  for (int64_t step = 0; step < 2; ++step) {
    with.fill(step, batch);
    EXPECT_FALSE(batch.starts.empty());
    marked = batch;
    training.fill(step, batch);  // the vectors of another source are reused
    EXPECT_TRUE(batch.starts.empty());
    EXPECT_EQ(batch.inputs, marked.inputs);  // documents change no token
    EXPECT_EQ(batch.targets, marked.targets);
    with.fill(step, batch);
    validation.fill(step, batch);
    EXPECT_TRUE(batch.starts.empty());
  }
}

// An id that is nowhere in the text leaves one document a row.
TEST_F(DocumentStarts, OneDocumentARowWhereTheTokenIsAbsent) {
  TokenSource source(shard(tokens), 2, length, 1, vocab, 29999);
  Batch batch;
  source.fill(0, batch);
  EXPECT_EQ(batch.starts, std::vector<int32_t>(10, 0));
}

// Id 0 also fills up the last row: unscored documents of one token, and the contract of starts holds.
TEST_F(DocumentStarts, OfTheTokenThatFillsTheLastRow) {
  ValidationSource source(shard({3, 0, 5, 6, 7, 8, 1, 2}), 2, length, vocab, 0);
  Batch batch;
  source.fill(0, batch);
  EXPECT_EQ(batch.inputs, (std::vector<int32_t>{3, 0, 5, 6, 7, 8, 1, 0, 0, 0}));
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 1, 1, 1, 1, 0, 0, 2, 3, 4}));
}

}  // namespace
}  // namespace kata
