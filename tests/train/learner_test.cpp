#include "train/learner.h"

#include <cstring>

#include "support/small_model.h"

namespace kata {
namespace {

constexpr int64_t rows = 6, length = 10, vocab = 19;

// Ready-made batches of the given shapes, in turn.
class FixedSource : public BatchSource {
 public:
  explicit FixedSource(std::vector<BatchShape> shapes) : shapes_(std::move(shapes)) {}
  BatchShape shape(int64_t step) const override {
    return shapes_[static_cast<size_t>(step) % shapes_.size()];
  }
  BatchShape largest() const override { return shapes_.front(); }
  int64_t vocab() const override { return kata::vocab; }
  void fill(int64_t step, Batch& batch) override {
    batch.shape = shape(step);
    batch.inputs =
        test::random_tokens(batch.shape.tokens(), kata::vocab, static_cast<uint64_t>(2 * step), false);
    batch.targets =
        test::random_tokens(batch.shape.tokens(), kata::vocab, static_cast<uint64_t>(2 * step + 1), true);
  }
  int64_t steps_per_epoch() const override { return static_cast<int64_t>(shapes_.size()); }

 private:
  std::vector<BatchShape> shapes_;
};

Learner make(const TrainConfig& train, const OptimizerConfig& optimizer = {}) {
  return Learner(test::small_config(test::mixer("kata_m2")), train, optimizer, {{rows, length}},
                 {{rows, length}});
}

std::vector<float> gradient(Learner& learner) {
  const Tensor g = learner.model().parameters().gradients();
  return {g.as<float>(), g.as<float>() + g.numel()};
}
std::vector<float> weights(Learner& learner) {
  const Tensor w = learner.model().parameters().values();
  return {w.as<float>(), w.as<float>() + w.numel()};
}

TEST(Learner, AccumulationOverMicroBatchesGivesTheSameGradient) {
  FixedSource source({{rows, length}});
  Batch batch;
  source.fill(0, batch);
  Learner whole = make({});
  const double loss = whole.gradients(batch);
  const auto expected = gradient(whole);
  for (const int64_t micro : {1, 2, 4}) {  // 4 leaves a shorter slice
    TrainConfig train;
    train.micro_batch = micro;
    Learner parts = make(train);
    EXPECT_NEAR(parts.gradients(batch), loss, 1e-6) << micro;
    EXPECT_TRUE(test::close(gradient(parts), expected, 1e-5)) << micro;
  }
}

TEST(Learner, GradientsReplaceTheOldOnes) {
  FixedSource source({{rows, length}});
  Batch batch;
  source.fill(0, batch);
  Learner learner = make({});
  learner.gradients(batch);
  const auto once = gradient(learner);
  learner.gradients(batch);
  EXPECT_EQ(gradient(learner), once);
}

// One step of AdamW from zero moments: w -= rate (g / (|g| + eps) + decay w), the clip's scale cancelling but
// in eps.
TEST(Learner, TheFirstUpdateIsTheSignOfTheGradientAndDecaysMatricesOnly) {
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0.5;
  optimizer.eps = 1e-30;
  TrainConfig train;
  train.clip = 1e-3;
  Learner learner = make(train, optimizer);
  FixedSource source({{rows, length}});
  Batch batch;
  source.fill(0, batch);
  learner.gradients(batch);
  const auto g = gradient(learner), before = weights(learner);
  learner.update(0.01, learner.gradient_norm());
  const auto after = weights(learner);
  const auto decayed = static_cast<size_t>(learner.model().parameters().decayed_count());
  ASSERT_GT(decayed, 0u);
  ASSERT_LT(decayed, g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    const double sign = g[i] > 0 ? 1 : g[i] < 0 ? -1 : 0;
    const double decay = i < decayed ? 0.5 * static_cast<double>(before[i]) : 0;
    EXPECT_NEAR(after[i], static_cast<double>(before[i]) - 0.01 * (sign + decay), 2e-6) << i;
  }
}

TEST(Learner, DecayedParametersAreTheMatricesAndTheEmbedding) {
  Learner learner = make({});
  for (const Parameter& p : learner.model().parameters().all()) {
    const bool convolution = p.name.find(".conv.") != std::string::npos;
    EXPECT_EQ(p.decay, p.shape.rank() == 2 && !convolution) << p.name;
  }
}

TEST(Learner, ClippingScalesTheUpdateNotTheDirection) {
  FixedSource source({{rows, length}});
  Batch batch;
  source.fill(0, batch);
  OptimizerConfig optimizer;
  optimizer.eps = 1;  // so that the size of the gradient matters
  optimizer.weight_decay = 0;
  std::vector<std::vector<float>> moved;
  double norm = 0;
  for (const double clip : {0.0, 0.1}) {
    TrainConfig train;
    train.clip = clip;
    Learner learner = make(train, optimizer);
    learner.gradients(batch);
    norm = learner.gradient_norm();
    learner.update(0.01, norm);
    const Tensor m = learner.moments().front().second;
    moved.emplace_back(m.as<float>(), m.as<float>() + m.numel());
  }
  ASSERT_GT(norm, 0.1);
  for (float& m : moved[0]) m *= static_cast<float>(0.1 / norm);
  EXPECT_TRUE(test::close(moved[1], moved[0], 1e-5));
}

TEST(Learner, EvaluationDoesNotDependOnItsSlices) {
  FixedSource source({{rows, length}, {3, length}});
  std::vector<Evaluation> results;
  for (const int64_t micro : {0, 1, 4}) {
    TrainConfig train;
    train.micro_batch = micro;
    Learner learner(test::small_config(test::mixer("kata_m2")), train, {}, {{rows, length}},
                    {{rows, length}, {3, length}});
    results.push_back(learner.evaluate(source, 0));
  }
  for (const Evaluation& e : results) {
    EXPECT_EQ(e.tokens, results[0].tokens);
    EXPECT_EQ(e.correct, results[0].correct);
    EXPECT_EQ(e.examples, 9);
    EXPECT_NEAR(e.loss_sum, results[0].loss_sum, 1e-4);
  }
}

TEST(Learner, PlanIsUseAndTheUpdateFitsIn) {
  TrainConfig train;
  train.micro_batch = 4;
  Learner learner = make(train);
  const MemoryPlan plan = Learner::plan(learner.model().config(), train, {{rows, length}}, {{rows, length}});
  EXPECT_EQ(plan.total(), learner.memory().total());
  FixedSource source({{rows, length}});
  Batch batch;
  source.fill(0, batch);
  learner.gradients(batch);
  learner.update(0.01, learner.gradient_norm());
  learner.evaluate(source, 1);
  EXPECT_EQ(learner.activation_peak(), plan.activations);
}

TEST(Learner, ABatchWithoutTargetsIsADataError) {
  Learner learner = make({});
  Batch batch{
      {rows, length}, std::vector<int32_t>(rows * length, 1), std::vector<int32_t>(rows * length, kNoTarget)};
  EXPECT_THROW(learner.gradients(batch), Error);
}

}  // namespace
}  // namespace kata
