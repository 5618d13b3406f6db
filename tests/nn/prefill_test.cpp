// Inference: prompts at once, in pieces and of different lengths, against token by token and against
// training.
#include <algorithm>

#include "nn/generator.h"
#include "nn/model_cases.h"

namespace kata {
namespace {

using test::Named;
using test::SmallModel;

constexpr int64_t vocab = 19;

// A state with its memory; every call gets scratch of exactly the planned size.
class Decoder {
 public:
  Decoder(LanguageModel& model, int64_t batch, int64_t capacity) : model_(model) {
    Arena plan;
    model.take_state(plan, batch, capacity);
    memory_ = Arena(plan.peak());
    state_ = model.take_state(memory_, batch, capacity);
  }

  // Logits [batch, vocab] after tokens [batch, n] more, as one piece.
  std::vector<double> prefill(std::vector<int32_t> tokens) {
    const int64_t n = static_cast<int64_t>(tokens.size()) / state_.batch;
    return run([&](Context& ctx, const Tensor& logits, DecodeState& state) {
      model_.prefill(ctx, logits, Tensor(tokens.data(), DType::i32, {state.batch, n}), state);
    });
  }
  // After one more each.
  std::vector<double> step(std::vector<int32_t> tokens) {
    return run([&](Context& ctx, const Tensor& logits, DecodeState& state) {
      model_.step(ctx, logits, Tensor(tokens.data(), DType::i32, {state.batch}), state);
    });
  }
  int64_t position() const { return state_.position; }

 private:
  template <class Pass>
  std::vector<double> run(Pass&& pass) {
    const DType dtype = model_.parameters().dtype();
    std::vector<std::byte> bytes(static_cast<size_t>(state_.batch * vocab) * size_of(dtype));
    const Tensor logits(bytes.data(), dtype, {state_.batch, vocab});
    DecodeState planned = state_;
    Arena plan;
    Context planning{plan};
    pass(planning, logits, planned);
    Arena scratch(plan.peak());
    Context ctx{scratch};
    pass(ctx, logits, state_);
    std::vector<double> out;
    dispatch_float(dtype, [&]<class T>() { out.assign(logits.as<T>(), logits.as<T>() + logits.numel()); });
    return out;
  }

  LanguageModel& model_;
  Arena memory_;
  DecodeState state_;
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                 const std::string& where) {
  ASSERT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i]));
    worst = error <= worst ? worst : error;  // NaN stays
  }
  EXPECT_TRUE(worst <= tolerance) << where << ": largest error " << worst;
}

// The first tokens of a sequence have small masses, so that the forms differ in their last digits.
constexpr double float_tolerance = 5e-5;

class Prefill : public ::testing::TestWithParam<Named> {
 protected:
  static constexpr int64_t batch = 2, time_steps = 13;
  static constexpr double tolerance_of(DType dtype) { return dtype == DType::f64 ? 1e-10 : float_tolerance; }

  // Tokens begin .. end - 1 of both rows.
  std::vector<int32_t> tokens(int64_t begin, int64_t end) const {
    std::vector<int32_t> out;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = begin; t < end; ++t) out.push_back(all[static_cast<size_t>(b * time_steps + t)]);
    return out;
  }
  // Logits after every token, token by token.
  std::vector<std::vector<double>> steps_alone(LanguageModel& model) const {
    Decoder decoder(model, batch, time_steps);
    std::vector<std::vector<double>> logits;
    for (int64_t t = 0; t < time_steps; ++t) logits.push_back(decoder.step(tokens(t, t + 1)));
    return logits;
  }
  template <class Body>
  void for_types(Body&& body) const {
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(name_of(dtype));
      SmallModel small(GetParam().config, dtype, batch, time_steps);
      test::spread(small.model);
      body(small, tolerance_of(dtype));
    }
  }
  const test::Threads one{1};
  std::vector<int32_t> all = test::random_tokens(batch * time_steps, vocab, 1, false);
};

// The losses of training are those of the steps.
TEST_P(Prefill, StepsEqualTraining) {
  for_types([&](SmallModel& small, double tolerance) {
    const auto logits = steps_alone(small.model);
    for (int64_t t = 0; t < time_steps; ++t) {
      std::vector<int32_t> inputs = all;
      std::vector<int32_t> targets(all.size(), -1);  // only token t of both rows is scored
      double expected = 0;
      for (int64_t b = 0; b < batch; ++b) {
        const auto target = static_cast<int32_t>((5 * t + 3 * b) % vocab);
        targets[static_cast<size_t>(b * time_steps + t)] = target;
        double sum = 0;
        for (int64_t j = 0; j < vocab; ++j)
          sum += std::exp(logits[static_cast<size_t>(t)][static_cast<size_t>(b * vocab + j)]);
        expected += std::log(sum) - logits[static_cast<size_t>(t)][static_cast<size_t>(b * vocab + target)];
      }
      const double loss = small.loss(inputs, targets, false);
      EXPECT_TRUE(std::abs(loss - expected / batch) <= tolerance) << "token " << t << ": " << loss;
    }
  });
}

// A prompt of any length, one shorter than the convolution too, then steps.
TEST_P(Prefill, PromptThenStepsEqualSteps) {
  for_types([&](SmallModel& small, double tolerance) {
    const auto expected = steps_alone(small.model);
    for (int64_t prompt = 1; prompt <= time_steps; ++prompt) {
      Decoder decoder(small.model, batch, time_steps);
      expect_near(decoder.prefill(tokens(0, prompt)), expected[static_cast<size_t>(prompt - 1)], tolerance,
                  fmt::format("prompt of {}", prompt));
      for (int64_t t = prompt; t < time_steps; ++t)
        expect_near(decoder.step(tokens(t, t + 1)), expected[static_cast<size_t>(t)], tolerance,
                    fmt::format("token {} after a prompt of {}", t, prompt));
      EXPECT_EQ(decoder.position(), time_steps);
    }
  });
}

// Cut in two at every place, then a step; and a step, then the rest as a prompt.
TEST_P(Prefill, APromptInPiecesEqualsSteps) {
  for_types([&](SmallModel& small, double tolerance) {
    const auto expected = steps_alone(small.model);
    const int64_t end = time_steps - 1;
    for (int64_t cut = 1; cut < end; ++cut) {
      Decoder decoder(small.model, batch, time_steps), stepped(small.model, batch, time_steps);
      decoder.prefill(tokens(0, cut));
      for (int64_t t = 0; t < cut; ++t) stepped.step(tokens(t, t + 1));
      for (Decoder* d : {&decoder, &stepped}) {
        const std::string where = fmt::format("cut at {}, {}", cut, d == &stepped ? "stepped" : "prefilled");
        expect_near(d->prefill(tokens(cut, end)), expected[static_cast<size_t>(end - 1)], tolerance, where);
        expect_near(d->step(tokens(end, end + 1)), expected[static_cast<size_t>(end)], tolerance, where);
      }
    }
    Decoder single(small.model, batch, time_steps);
    for (int64_t t = 0; t < time_steps; ++t)
      expect_near(single.prefill(tokens(t, t + 1)), expected[static_cast<size_t>(t)], tolerance,
                  fmt::format("token {} as a prompt of its own", t));
  });
}

std::vector<double> row_of(const float* logits, size_t row) {
  return {logits + row * vocab, logits + (row + 1) * vocab};
}

std::vector<std::vector<int32_t>> prompts_of(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : lengths)
    prompts.push_back(test::random_tokens(length, vocab, 10 + prompts.size(), false));
  return prompts;
}

// A batch of prompts and `more` tokens after them, against each row alone.
void expect_rows_as_alone(LanguageModel& model, const std::vector<int64_t>& lengths, int64_t more) {
  const auto prompts = prompts_of(lengths);
  const int64_t capacity = *std::max_element(lengths.begin(), lengths.end()) + more;
  Generator together(model, capacity, static_cast<int64_t>(prompts.size()));
  std::vector<std::unique_ptr<Generator>> alone;
  const float* logits = together.start(prompts);
  for (int64_t fed = 0; fed <= more; ++fed) {
    std::vector<int32_t> next;
    for (size_t b = 0; b < prompts.size(); ++b) {
      if (fed == 0) alone.push_back(std::make_unique<Generator>(model, lengths[b] + more));
      const auto token = static_cast<int32_t>((7 * fed + 3 * static_cast<int64_t>(b)) % vocab);
      const float* own = fed == 0 ? alone[b]->start({prompts[b]}) : alone[b]->feed({token});
      next.push_back(static_cast<int32_t>((7 * (fed + 1) + 3 * static_cast<int64_t>(b)) % vocab));
      expect_near(row_of(logits, b), row_of(own, 0), float_tolerance,
                  fmt::format("prompt of {}, {} tokens after it", lengths[b], fed));
    }
    if (fed < more) logits = together.feed(next);
  }
  EXPECT_EQ(together.position(), capacity);
}

TEST_P(Prefill, RowsOfDifferentLengthsAreAsAlone) {
  SmallModel small(GetParam().config, DType::f32, 1, 1);
  test::spread(small.model);
  expect_rows_as_alone(small.model, {1, 2, 5, 11}, 5);
  expect_rows_as_alone(small.model, {9, 3, 8}, 5);
  expect_rows_as_alone(small.model, {6, 6}, 2);
}

ModelConfig one_layer(ModelConfig config) {
  config.layers = 1;
  config.mixers.resize(1);
  return config;
}

// Prompts of several pieces: rows that begin in the second piece, at its first token and at its last.
TEST_P(Prefill, PromptsLongerThanAPiece) {
  static_assert(Generator::prefill_tokens == 256);
  SmallModel small(one_layer(GetParam().config), DType::f32, 1, 1);
  test::spread(small.model);
  expect_rows_as_alone(small.model, {300, 280, 45, 44, 43, 1}, 2);

  const auto prompt = prompts_of({300})[0];
  Generator generator(small.model, 300);
  const float* logits = generator.start({prompt});
  Decoder decoder(small.model, 1, 300);
  std::vector<double> expected;
  for (const int32_t token : prompt) expected = decoder.step({token});
  expect_near(row_of(logits, 0), expected, float_tolerance, "against steps");
}

int64_t softmax_layers(const ModelConfig& config) {
  return std::count_if(config.mixers.begin(), config.mixers.end(), [](const auto& m) { return m.softmax(); });
}

TEST_P(Prefill, OnlySoftmaxTakesMemoryThatGrowsWithTheCapacity) {
  const ModelConfig& config = GetParam().config;
  SmallModel small(config, DType::f32, 1, 1);
  const int64_t rows = 3, layers = softmax_layers(config), piece = Generator::prefill_tokens;
  const auto memory = [&](int64_t capacity) { return Generator(small.model, capacity, rows).memory(); };
  if (layers == 0) {
    EXPECT_EQ(memory(int64_t{1} << 40), memory(piece));
  } else {
    const int64_t caches = layers * rows * (4096 - piece) * 2 * config.kv_heads * config.head_dim;
    EXPECT_GE(memory(4096) - memory(piece), static_cast<size_t>(caches) * sizeof(float));
  }
}

TEST_P(Prefill, ThePlanCoversEveryPromptUpToTheCapacity) {
  SmallModel small(GetParam().config, DType::f32, 1, 1);
  for (const int64_t capacity : {1, 2, 3, 9, 40}) {
    for (int64_t prompt = 1; prompt <= capacity; prompt += 1 + prompt / 4) {
      for (const int64_t other : {int64_t{1}, prompt}) {
        Generator generator(small.model, capacity, 2);
        generator.start(prompts_of({prompt, other}));
        while (generator.position() < capacity) generator.feed({3, 4});
        EXPECT_THROW(generator.feed({3, 4}), std::logic_error) << "past a capacity of " << capacity;
        EXPECT_EQ(generator.position(), capacity);
      }
    }
  }
  Generator generator(small.model, 530, 2);
  generator.start(prompts_of({530, 529}));  // three pieces
  EXPECT_THROW(generator.feed({3, 4}), std::logic_error);
}

INSTANTIATE_TEST_SUITE_P(Mixers, Prefill, ::testing::ValuesIn(test::cases()),
                         [](const auto& info) { return info.param.name; });

TEST(GeneratorContract, WhatItRefuses) {
  SmallModel small(test::small_config(test::mixer("kata_m2")), DType::f32, 1, 1);
  const auto refused = [&](const std::vector<std::vector<int32_t>>& prompts) {
    Generator generator(small.model, 4, 2);
    EXPECT_THROW(generator.start(prompts), std::logic_error);
  };
  refused({{1}});                   // a row too few
  refused({{1}, {}});               // an empty prompt
  refused({{1}, {1, 2, 3, 4, 5}});  // above the capacity
  refused({{1}, {19}});
  refused({{1}, {-1}});
  Generator generator(small.model, 4, 2);
  generator.start({{1}, {2, 3}});
  EXPECT_THROW(generator.start({{1}, {2, 3}}), std::logic_error);
  EXPECT_THROW(generator.feed({1}), std::logic_error);
  EXPECT_THROW(generator.feed({1, 19}), std::logic_error);
  EXPECT_THROW(generator.feed({1, -1}), std::logic_error);
  EXPECT_EQ(generator.position(), 2);
}

}  // namespace
}  // namespace kata
