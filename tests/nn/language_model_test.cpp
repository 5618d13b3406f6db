#include "nn/language_model.h"

#include <cstring>
#include <numeric>

#include "nn/model_cases.h"

namespace kata {
namespace {

using test::Named;
using test::SmallModel;
using test::spread;

constexpr int64_t batch = 2, time_steps = 11;

class Model : public ::testing::TestWithParam<Named> {
 protected:
  const test::Threads one{1};
  std::vector<int32_t> inputs = test::random_tokens(batch * time_steps, 19, 1, false);
  std::vector<int32_t> targets = test::random_tokens(batch * time_steps, 19, 2, true);
};

// (loss(x + h d) - loss(x - h d)) / 2h, extrapolated once (Richardson) so that its error is O(h^4).
double directional(SmallModel& small, Parameter& p, const std::vector<double>& direction,
                   std::vector<int32_t>& inputs, std::vector<int32_t>& targets) {
  double* x = p.value.as<double>();
  const std::vector<double> start(x, x + p.shape.numel());
  const auto slope = [&](double h) {
    const auto at = [&](double step) {
      for (size_t i = 0; i < start.size(); ++i) x[i] = start[i] + step * direction[i];
      return small.loss(inputs, targets, false);
    };
    const double value = (at(h) - at(-h)) / (2 * h);
    std::copy(start.begin(), start.end(), x);
    return value;
  };
  return (4 * slope(5e-5) - slope(1e-4)) / 3;
}

// 20 random entries and 3 random directions of every parameter tensor, against central differences.
TEST_P(Model, EveryGradientAgainstCentralDifferences) {
  SmallModel small(GetParam().config, DType::f64, batch, time_steps);
  spread(small.model);
  small.loss(inputs, targets, true);
  std::vector<std::vector<double>> gradients;
  for (const Parameter& p : small.model.parameters().all())
    gradients.emplace_back(p.gradient.as<double>(), p.gradient.as<double>() + p.shape.numel());
  size_t index = 0;
  for (const Parameter& p : small.model.parameters().all()) {
    const std::vector<double>& gradient = gradients[index++];
    const double norm =
        std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    EXPECT_GT(norm, 0) << p.name << " has no gradient";
    const Philox random(index, stream_test);
    const size_t n = gradient.size();
    for (uint64_t trial = 0; trial < 23; ++trial) {
      std::vector<double> direction(n, 0.0);
      if (trial < 20)
        direction[random.below(trial, n)] = 1;
      else
        direction = test::random_normal(n, 100 * index + trial);
      const double expected = std::inner_product(gradient.begin(), gradient.end(), direction.begin(), 0.0);
      const double measured =
          directional(small, small.model.parameters().find(p.name), direction, inputs, targets);
      const double size = std::max(std::abs(expected), trial < 20 ? 1e-2 * norm : 1e-1 * norm);
      // 4e-11: rounding of a loss near 3, divided by steps of 1e-4.
      EXPECT_TRUE(std::abs(measured - expected) <= 1e-6 * size + 4e-11)
          << p.name << " trial " << trial << ": " << measured << " against " << expected;
    }
  }
}

TEST_P(Model, RecomputeChangesNoBit) {
  SmallModel kept(GetParam().config, DType::f32, batch, time_steps);
  SmallModel again(GetParam().config, DType::f32, batch, time_steps, true);
  EXPECT_EQ(kept.loss(inputs, targets, true), again.loss(inputs, targets, true));
  const Tensor a = kept.model.parameters().gradients(), b = again.model.parameters().gradients();
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes()), 0);
  EXPECT_LT(again.planned(), kept.planned());
}

TEST_P(Model, PlanIsUse) {
  for (const bool recompute : {false, true}) {
    SmallModel small(GetParam().config, DType::f32, batch, time_steps, recompute);
    small.loss(inputs, targets, true);
    EXPECT_EQ(small.planned(), small.used());
  }
}

TEST_P(Model, ThreadCountChangesNoBit) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2}) {
    const test::Threads scope(threads);
    SmallModel small(GetParam().config, DType::f32, batch, time_steps);
    const double loss = small.loss(inputs, targets, true);
    const Tensor g = small.model.parameters().gradients();
    results.emplace_back(g.as<float>(), g.as<float>() + g.numel());
    results.back().push_back(static_cast<float>(loss));
  }
  EXPECT_EQ(results[0], results[1]);
}

// Losses of a batch, position by position.
std::vector<float> position_losses(LanguageModel& model, std::vector<int32_t> inputs,
                                   std::vector<int32_t> targets, int64_t rows) {
  std::vector<float> losses(inputs.size());
  const auto run = [&](Arena& arena) {
    Context ctx{arena};
    const Shape shape{rows, static_cast<int64_t>(inputs.size()) / rows};
    model.evaluate(ctx, Tensor(losses.data(), DType::f32, {static_cast<int64_t>(losses.size())}), {},
                   Tensor(inputs.data(), DType::i32, shape), Tensor(targets.data(), DType::i32, shape));
  };
  Arena plan;
  run(plan);
  Arena arena(plan.peak());
  run(arena);
  return losses;
}

TEST_P(Model, AChangeAtALaterTokenLeavesEarlierLossesEqualToTheBit) {
  SmallModel small(GetParam().config, DType::f32, batch, time_steps);
  const std::vector<int32_t> scored = test::random_tokens(time_steps, 19, 5, false);
  std::vector<int32_t> row(inputs.begin(), inputs.begin() + time_steps);
  const auto before = position_losses(small.model, row, scored, 1);
  row[7] = (row[7] + 1) % 19;
  const auto after = position_losses(small.model, row, scored, 1);
  for (size_t t = 0; t < 7; ++t) EXPECT_EQ(before[t], after[t]) << t;
  EXPECT_NE(before[7], after[7]);
}

// Token by token through the state, against the whole sequence at once.
TEST_P(Model, StepEqualsForward) {
  SmallModel small(GetParam().config, DType::f32, batch, time_steps);
  const std::vector<int32_t> scored = test::random_tokens(batch * time_steps, 19, 6, false);
  const auto whole = position_losses(small.model, inputs, scored, batch);

  Arena memory_plan;
  small.model.take_state(memory_plan, batch, time_steps);
  Arena memory(memory_plan.peak());
  DecodeState state = small.model.take_state(memory, batch, time_steps);
  std::vector<float> logits(static_cast<size_t>(batch * 19));
  std::vector<int32_t> token(static_cast<size_t>(batch));
  const Tensor out(logits.data(), DType::f32, {batch, 19}), in(token.data(), DType::i32, {batch});
  Arena plan;
  DecodeState planned = state;
  Context planning{plan};
  small.model.step(planning, out, in, planned);
  Arena scratch(plan.peak());
  Context ctx{scratch};
  for (int64_t t = 0; t < time_steps; ++t) {
    for (int64_t b = 0; b < batch; ++b)
      token[static_cast<size_t>(b)] = inputs[static_cast<size_t>(b * time_steps + t)];
    small.model.step(ctx, out, in, state);
    for (int64_t b = 0; b < batch; ++b) {
      const size_t at = static_cast<size_t>(b * time_steps + t);
      double sum = 0;
      for (int64_t j = 0; j < 19; ++j)
        sum += std::exp(static_cast<double>(logits[static_cast<size_t>(b * 19 + j)]));
      const double loss =
          std::log(sum) - static_cast<double>(logits[static_cast<size_t>(b * 19 + scored[at])]);
      EXPECT_NEAR(loss, static_cast<double>(whole[at]), 2e-5) << "sequence " << b << " token " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mixers, Model, ::testing::ValuesIn(test::cases()),
                         [](const auto& info) { return info.param.name; });

ModelConfig large_config(const MixerConfig& mixer) {
  ModelConfig config;
  config.hidden = 1024;
  config.layers = 24;
  config.heads = config.kv_heads = 16;
  config.head_dim = 64;
  config.mlp = 2816;
  config.vocab = 32000;
  config.mixers.assign(24, mixer);
  return config;
}

TEST(LanguageModelSizes, The340MModelsHaveThePublishedCounts) {
  EXPECT_EQ(LanguageModel(large_config(test::mixer("softmax")), DType::f32).parameters().count(),
            341'099'520);
  EXPECT_EQ(LanguageModel(large_config(test::mixer("kata_m1")), DType::f32).parameters().count(),
            341'104'128);
}

// The recall model of MATH section 6: 2 blocks, 2 heads of 64; states counted without the mass column there.
TEST(LanguageModelSizes, StateEntries) {
  ModelConfig config = large_config(test::mixer("kata_m1"));
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.hidden = 128;
  config.mixers.resize(2);
  EXPECT_EQ(LanguageModel(config, DType::f32).state_entries(4096), 2 * 2 * 2080 * 65);
  config.mixers.assign(2, test::mixer("softmax"));
  EXPECT_EQ(LanguageModel(config, DType::f32).state_entries(4096), 2 * 2 * 128 * 4096);
}

TEST(LanguageModelInit, DependsOnSeedAndNameAlone) {
  SmallModel a(test::small_config(test::mixer("kata_m1")), DType::f32, 1, 1);
  SmallModel b(test::small_config(test::mixer("softmax")), DType::f32, 1, 1);
  const Tensor wa = a.model.parameters().find("blocks.1.mlp.down.weight").value;
  const Tensor wb = b.model.parameters().find("blocks.1.mlp.down.weight").value;
  EXPECT_EQ(std::memcmp(wa.data(), wb.data(), wa.bytes()), 0);
  a.model.parameters().initialise(8);
  EXPECT_NE(std::memcmp(wa.data(), wb.data(), wa.bytes()), 0);
}

}  // namespace
}  // namespace kata
