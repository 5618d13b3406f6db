#include "eval/grid.h"

#include <cmath>
#include <gtest/gtest.h>

#include "base/parallel.h"
#include "eval/tiny_suite.h"
#include "support/errors.h"

namespace kata {
namespace {

constexpr int64_t vocab = 48;

// A model whose blocks add nothing, so that its prediction after token t is answers[t] whatever came before.
class TableModel {
 public:
  explicit TableModel(const std::vector<int64_t>& answers) : model(config(), DType::f32) {
    Parameters& parameters = model.parameters();
    memory_.assign(static_cast<size_t>(parameters.count()), 0.0f);
    parameters.bind(Tensor(memory_.data(), DType::f32, {parameters.count()}), {});
    float* norm = parameters.find("norm.weight").value.as<float>();
    float* embedding = parameters.find("embedding.weight").value.as<float>();
    float* head = parameters.find("head.weight").value.as<float>();
    for (int64_t i = 0; i < vocab; ++i) {
      norm[i] = 1;
      embedding[i * vocab + i] = 1;
      head[answers[static_cast<size_t>(i)] * vocab + i] = 1;
    }
  }

  LanguageModel model;

 private:
  static ModelConfig config() {
    ModelConfig config;
    config.hidden = vocab;
    config.layers = 1;
    config.heads = 1;
    config.mlp = 4;
    config.vocab = vocab;
    config.tie_embeddings = false;
    config.mixers = {mixer_of("kata_m1")};
    resolve_model(config);
    return config;
  }
  std::vector<float> memory_;
};

bool go_on(int64_t) {
  return true;
}

CellScore score_of(LanguageModel& model, const GridCell& cell) {
  CellScore score;
  EXPECT_TRUE(score_cell(model, cell, go_on, score));
  return score;
}

// Two examples of two pairs. The model answers both questions of the first one rightly, and one of the
// second.
TEST(Metric, ByHand) {
  const GridCell cell{{16, 2, 2, vocab, 7}};
  const auto data = make_examples(cell.spec);
  std::vector<int32_t> rows[2], targets(16);
  for (int64_t row = 0; row < 2; ++row) {
    rows[row].resize(16);
    data->render(row, rows[row].data(), targets.data());
  }
  const auto key = [&](int row, int pair) { return rows[row][static_cast<size_t>(2 * pair)]; };
  const auto value = [&](int row, int pair) { return rows[row][static_cast<size_t>(2 * pair + 1)]; };
  for (int pair = 0; pair < 2; ++pair)  // this seed gives four different keys
    ASSERT_TRUE(key(1, pair) != key(0, 0) && key(1, pair) != key(0, 1));
  std::vector<int64_t> answers(vocab, 0);
  for (const auto& [row, pair] : {std::pair{0, 0}, {0, 1}, {1, 1}})
    answers[static_cast<size_t>(key(row, pair))] = value(row, pair);
  TableModel table(answers);
  const CellScore score = score_of(table.model, cell);
  EXPECT_DOUBLE_EQ(score.headline(), (1.0 + 0.5) / 2);
  EXPECT_EQ(score.examples, 2);
  // The normed one-hot vector has the entry sqrt(48): that is the logit of the answer, all others are 0.
  const double big = std::sqrt(48.0), total = std::exp(big) + vocab - 1;
  EXPECT_NEAR(score.loss, (3 * (std::log(total) - big) + std::log(total)) / 4, 1e-4);
}

// More examples than a slice holds, and a shorter one at the end: against a count over all rows.
TEST(Metric, OverSeveralSlices) {
  const GridCell cell{{32, 4, 700, vocab, 11}};
  ASSERT_LT(slice_examples(cell), 700);
  ASSERT_NE(700 % slice_examples(cell), 0);
  std::vector<int64_t> answers(vocab);
  for (int64_t i = 0; i < vocab; ++i) answers[static_cast<size_t>(i)] = vocab / 2 + i % (vocab / 2);
  const auto data = make_examples(cell.spec);
  std::vector<int32_t> inputs(32), targets(32);
  double right = 0;
  for (int64_t row = 0; row < 700; ++row) {
    data->render(row, inputs.data(), targets.data());
    for (size_t t = 0; t < 32; ++t)
      right += targets[t] >= 0 && answers[static_cast<size_t>(inputs[t])] == targets[t];
  }
  ASSERT_GT(right, 20);
  TableModel table(answers);
  int64_t seen = 0, slices = 0;
  CellScore score;
  EXPECT_TRUE(score_cell(
      table.model, cell, [&](int64_t examples) { return seen += examples, ++slices, true; }, score));
  EXPECT_EQ(seen, 700);
  EXPECT_EQ(slices, 2);
  EXPECT_EQ(score.examples, 700);
  EXPECT_NEAR(score.headline(), right / 2800, 1e-12);
}

// Answers of later slices are held against their own examples.
TEST(Metric, OverwriteOverSeveralSlices) {
  const GridCell cell{{32, 3, 700, vocab, 11, "overwrite", 2, 2, "interleaved"}};
  ASSERT_LT(slice_examples(cell), 700);
  std::vector<int64_t> answers(vocab);
  for (int64_t i = 0; i < vocab; ++i) answers[static_cast<size_t>(i)] = vocab / 2 + i % (vocab / 2);
  const auto data = make_examples(cell.spec);
  std::vector<Question> questions;
  double latest = 0, stale = 0, untouched = 0;
  for (int64_t row = 0; row < 700; ++row) {
    data->questions(row, questions);
    for (const Question& q : questions) {
      const int64_t answer = answers[static_cast<size_t>(q.key)];
      if (q.values.size() == 1)
        untouched += answer == q.values[0];
      else
        latest += answer == q.values[2], stale += answer == q.values[0] || answer == q.values[1];
    }
  }
  ASSERT_GT(latest, 20);
  ASSERT_GT(untouched, 10);
  TableModel table(answers);
  const CellScore score = score_of(table.model, cell);
  EXPECT_EQ(score.examples, 700);
  EXPECT_NEAR(score.metric("latest_acc"), latest / 1400, 1e-12);
  EXPECT_NEAR(score.metric("stale_rate"), stale / 1400, 1e-12);
  EXPECT_NEAR(score.metric("untouched_acc"), untouched / 700, 1e-12);
}

TEST(Metric, StopsBetweenSlices) {
  TableModel table(std::vector<int64_t>(vocab, 0));
  CellScore score;
  int64_t slices = 0;
  const auto stop = [&](int64_t) { return ++slices, false; };
  EXPECT_FALSE(score_cell(table.model, {{32, 4, 700, vocab, 11}}, stop, score));
  EXPECT_EQ(slices, 1);
  EXPECT_TRUE(score_cell(table.model, {{32, 4, 10, vocab, 11}}, stop, score)) << "the cell was read whole";
}

TEST(Metric, ThreadCountChangesNoBit) {
  std::vector<int64_t> answers(vocab, vocab / 2);
  TableModel table(answers);
  const GridCell cell{{32, 4, 600, vocab, 2}};
  const int before = thread_count();
  set_thread_count(1);
  const CellScore one = score_of(table.model, cell);
  set_thread_count(2);
  const CellScore two = score_of(table.model, cell);
  set_thread_count(before);
  EXPECT_EQ(one.headline(), two.headline());
  EXPECT_EQ(one.loss, two.loss);
}

// The seeds that EVAL B.1 gives for five training segments.
TEST(Grid, OfTheFullSuite) {
  const std::string path = std::string(KATA_SOURCE_DIR) + "/configs/suites/mqar.yaml";
  const std::vector<GridCell> grid = grid_of(load_suite_config(path, false, {}));
  ASSERT_EQ(grid.size(), 4u);
  EXPECT_EQ(grid[0].name(), "256x64");
  EXPECT_EQ(grid[3].name(), "4096x1024");
  EXPECT_TRUE(grid[0].trained);
  for (size_t i = 1; i < 4; ++i) EXPECT_FALSE(grid[i].trained);
  EXPECT_EQ(grid[0].spec.seed, 2967327842u);
  EXPECT_EQ(grid[1].spec.seed, 2367878886u);
  EXPECT_EQ(grid[2].spec.seed, 3088727057u);
  EXPECT_EQ(grid[3].spec.seed, 3090095699u);
}

TEST(Grid, TwoEqualCellsAreRefused) {
  const test::TinySuite tiny(
      {"evaluation=[{length: 32, pairs: 4, examples: 5}, {length: 32, pairs: 4, examples: 6}]"});
  EXPECT_TRUE(test::fails_with(ExitCode::usage, {"evaluation", "length 32", "4 pairs"},
                               [&] { grid_of(tiny.suite); }));
}

}  // namespace
}  // namespace kata
