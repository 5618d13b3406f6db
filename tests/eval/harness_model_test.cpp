// A checkpoint as a model of tokens: its likelihoods against the recurrent form, whatever stands beside a
// row.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "eval/harness/checkpoint_model.h"
#include "eval/tiny_suite.h"

namespace kata::harness {
namespace {

// Folders of the trained models of a suite: softmax and kata_m1.
std::vector<std::string> trained(test::TinySuite& suite) {
  suite.run();
  std::vector<std::string> folders;
  for (const std::string& path : suite.models())
    folders.push_back(std::filesystem::path(path).parent_path().string());
  return folders;
}

Row row_of(int32_t seed, size_t inputs, size_t targets) {
  Row row;
  for (size_t i = 0; i < inputs; ++i) row.inputs.push_back(static_cast<int32_t>((seed + 7 * i * i + i) % 48));
  row.targets.assign(row.inputs.end() - static_cast<std::ptrdiff_t>(targets) + 1, row.inputs.end());
  row.targets.push_back(seed % 48);
  return row;
}

// Token after token: log-softmax in double of the logits before each target.
Likelihood by_steps(LanguageModel& model, const Row& row) {
  const int64_t vocab = model.config().vocab;
  Generator generator(model, static_cast<int64_t>(row.inputs.size()));
  Likelihood likelihood;
  const size_t first = row.inputs.size() - row.targets.size();
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const float* logits = i == 0 ? generator.start({{row.inputs[0]}}) : generator.feed({row.inputs[i]});
    if (i < first) continue;
    const float* best = std::max_element(logits, logits + vocab);
    double sum = 0;
    for (int64_t c = 0; c < vocab; ++c) sum += std::exp(static_cast<double>(logits[c]) - *best);
    const int32_t target = row.targets[i - first];
    likelihood.sum += logits[target] - *best - std::log(sum);
    likelihood.greedy = likelihood.greedy && best - logits == target;
  }
  return likelihood;
}

TEST(CheckpointModel, LikelihoodsOfTheRecurrentForm) {
  test::TinySuite suite;
  const std::vector<std::string> folders = trained(suite);
  ASSERT_EQ(folders.size(), 2u);
  for (const std::string& folder : folders) {
    InferenceModel loaded(folder);
    CheckpointModel model(loaded);
    EXPECT_EQ(model.vocab(), 48);
    const std::vector<Row> rows = {row_of(1, 40, 3), row_of(2, 17, 17), row_of(3, 1, 1), row_of(4, 33, 1)};
    const std::vector<Likelihood> together = model.score(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Likelihood expected = by_steps(loaded.model(), rows[i]);
      EXPECT_NEAR(together[i].sum, expected.sum, 1e-4) << folder << ", row " << i;
      EXPECT_EQ(together[i].greedy, expected.greedy);
      EXPECT_NEAR(model.score({rows[i]})[0].sum, together[i].sum, 1e-5);
    }
  }
}

TEST(CheckpointModel, WhatFollowsARowDoesNotMatter) {
  test::TinySuite suite;
  for (const std::string& folder : trained(suite)) {
    InferenceModel loaded(folder);
    CheckpointModel model(loaded);
    const Row row = row_of(5, 20, 4);
    std::vector<double> sums;
    for (const size_t longer : {20u, 21u, 64u, 150u})
      sums.push_back(model.score({row_of(6, longer, 1), row})[1].sum);
    for (const double sum : sums) EXPECT_NEAR(sum, sums[0], 1e-5);
  }
}

TEST(CheckpointModel, WritesTheLikeliestTokens) {
  test::TinySuite suite;
  for (const std::string& folder : trained(suite)) {
    InferenceModel loaded(folder);
    CheckpointModel model(loaded);
    const std::vector<int32_t> prompt = row_of(7, 9, 1).inputs;
    const auto written = [&](int64_t most) {
      std::vector<int32_t> tokens;
      model.generate(prompt, most, [&](int32_t token) {
        tokens.push_back(token);
        return true;
      });
      return tokens;
    };
    const std::vector<int32_t> tokens = written(12);
    ASSERT_EQ(tokens.size(), 12u);
    EXPECT_EQ(written(12), tokens);  // the one before leaves nothing behind
    EXPECT_EQ(written(100).size(), 100u);
    // What was written is what the other form calls greedy.
    Row row{prompt, tokens};
    row.inputs.insert(row.inputs.end(), tokens.begin(), tokens.end() - 1);
    EXPECT_TRUE(model.score({row})[0].greedy);
    row.targets[5] = (row.targets[5] + 1) % 48;
    EXPECT_FALSE(model.score({row})[0].greedy);
    int64_t seen = 0;
    model.generate(prompt, 12, [&](int32_t) { return ++seen < 3; });
    EXPECT_EQ(seen, 3);
  }
}

}  // namespace
}  // namespace kata::harness
