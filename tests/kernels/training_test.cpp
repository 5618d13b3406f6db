// Whole models on the GPU: loss and every gradient against the CPU, steps that repeat to the bit, resuming.
#include "config/presets.h"
#include "support/gpu_trial.h"
#include "support/small_model.h"
#include "train/learner.h"

namespace kata {
namespace {

constexpr int64_t vocab = 61, rows = 3, length = 70;

ModelConfig model_of(const std::string& preset) {
  ModelConfig config = test::small_config(test::mixer(preset), vocab);
  config.hidden = 64;
  config.heads = 4;
  config.kv_heads = preset == "mamba2" ? 4 : 2;
  config.head_dim = 16;
  config.mlp = 48;
  return config;
}

Batch random_batch(uint64_t seed, bool documents = false) {
  const Philox random(seed, stream_test);
  Batch batch;
  batch.shape = {rows, length};
  for (uint64_t i = 0; i < rows * length; ++i) {
    batch.inputs.push_back(static_cast<int32_t>(random.below(2 * i, vocab)));
    batch.targets.push_back(i % 5 == 1 ? kNoTarget : static_cast<int32_t>(random.below(2 * i + 1, vocab)));
    const auto t = static_cast<int32_t>(i % length);
    if (documents) batch.starts.push_back(t < 9 ? 0 : t < 40 ? 9 : 40);
  }
  return batch;
}

class CudaTraining : public test::GpuTest {
 protected:
  Processor gpu() const { return {Device::cuda, test::test_gpu()}; }
  Learner learner(const ModelConfig& model, const Processor& processor, TrainConfig train = {}) {
    OptimizerConfig optimizer;
    optimizer.lr = 3e-3;
    return Learner(model, train, optimizer, {{rows, length}}, {{rows, length}}, processor);
  }
  std::vector<float> gradients_of(Learner& learner, const Processor& processor) {
    const Tensor flat = learner.model().parameters().gradients();
    std::vector<float> values(static_cast<size_t>(flat.numel()));
    if (processor.device == Device::cpu) {
      std::copy_n(flat.as<float>(), flat.numel(), values.data());
    } else {
      processor.gpu->download(values.data(), flat.data(), flat.bytes());
      processor.gpu->synchronise();
    }
    return values;
  }
};

// Relative Frobenius error of each parameter's gradient; on the GPU they are of the sum over scored tokens.
void compare_gradients(Learner& cpu, const std::vector<float>& expected, const std::vector<float>& found,
                       double scored, double tolerance) {
  for (const Parameter& p : cpu.model().parameters().all()) {
    std::vector<double> a, b;
    for (int64_t i = p.offset; i < p.offset + p.shape.numel(); ++i) {
      a.push_back(static_cast<double>(found[static_cast<size_t>(i)]) / scored);
      b.push_back(static_cast<double>(expected[static_cast<size_t>(i)]));
    }
    EXPECT_TRUE(test::close(a, b, tolerance)) << p.name;
  }
}

TEST_F(CudaTraining, LossAndGradientsOfEveryPreset) {
  for (const Preset& preset : presets())
    for (const bool documents : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", preset.name, documents ? " in documents" : ""));
      const ModelConfig model = model_of(preset.name);
      Batch batch = random_batch(5, documents);
      const auto scored = static_cast<double>(
          std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t >= 0; }));
      Learner cpu = learner(model, {}), fp32 = learner(model, gpu());
      const double expected = cpu.gradients(batch), found = fp32.gradients(batch);
      EXPECT_NEAR(found, expected, 2e-6 * expected);
      EXPECT_NEAR(fp32.gradient_norm(), cpu.gradient_norm(), 1e-4 * cpu.gradient_norm());
      const std::vector<float> cpu_gradients = gradients_of(cpu, {});
      compare_gradients(cpu, cpu_gradients, gradients_of(fp32, gpu()), scored, 1e-3);

      TrainConfig train;
      train.precision = "bf16";
      Learner bf16 = learner(model, gpu(), train);
      EXPECT_NEAR(bf16.gradients(batch), expected, 1e-2 * expected);
      EXPECT_NEAR(bf16.gradient_norm(), cpu.gradient_norm(), 0.1 * cpu.gradient_norm());
    }
}

// Eager steps, recorded ones, slices and recomputation give the same bits; two runs do, too.
TEST_F(CudaTraining, RunsRepeatToTheBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    SCOPED_TRACE(precision);
    const auto losses = [&](int64_t micro_batch, const std::string& recompute) {
      TrainConfig train;
      train.precision = precision;
      train.micro_batch = micro_batch;
      train.recompute = recompute;
      Learner run = learner(model_of("kata_m2"), gpu(), train);
      std::vector<double> seen;
      for (uint64_t step = 0; step < 8; ++step) {
        Batch batch = random_batch(step);
        seen.push_back(run.gradients(batch));
        seen.push_back(run.gradient_norm());
        run.update(3e-3, run.gradient_norm());
      }
      EXPECT_LT(seen[14], seen[0]) << "it learns";
      return seen;
    };
    const std::vector<double> once = losses(0, "none");
    EXPECT_EQ(losses(0, "none"), once);
    EXPECT_EQ(losses(0, "block"), once);
    EXPECT_EQ(losses(1, "none"), losses(1, "none"));
  }
}

TEST_F(CudaTraining, GoesOnFromItsStateToTheBit) {
  TrainConfig train;
  train.precision = "bf16";
  const auto step = [](Learner& run, uint64_t seed) {
    Batch batch = random_batch(seed);
    const double loss = run.gradients(batch);
    run.update(3e-3, run.gradient_norm());
    return loss;
  };
  Learner whole = learner(model_of("gateddeltakata_m1"), gpu(), train);
  for (uint64_t s = 0; s < 4; ++s) step(whole, s);
  std::vector<std::vector<float>> state;
  for (const auto& tensors : {whole.weights(), whole.moments()})
    for (const auto& [name, tensor] : tensors)
      state.emplace_back(tensor.as<float>(), tensor.as<float>() + tensor.numel());

  Learner resumed = learner(model_of("gateddeltakata_m1"), gpu(), train);
  size_t at = 0;
  for (const auto& tensors : {resumed.weights(), resumed.moments()})
    for (const auto& [name, tensor] : tensors)
      std::copy(state[at].begin(), state[at].end(), tensor.as<float>()), ++at;
  resumed.take_over();
  resumed.set_updates(whole.updates());
  for (uint64_t s = 4; s < 8; ++s) EXPECT_EQ(step(resumed, s), step(whole, s));
}

TEST_F(CudaTraining, EvaluatesAsTheCpuDoes) {
  Learner cpu = learner(model_of("softmax"), {}), fp32 = learner(model_of("softmax"), gpu());
  Batch batch = random_batch(11);
  class One : public BatchSource {
   public:
    explicit One(const Batch& batch) : batch_(batch) {}
    BatchShape shape(int64_t) const override { return batch_.shape; }
    BatchShape largest() const override { return batch_.shape; }
    int64_t vocab() const override { return kata::vocab; }
    void fill(int64_t, Batch& to) override { to = batch_; }
    int64_t steps_per_epoch() const override { return 1; }

   private:
    Batch batch_;
  } source(batch);
  const Evaluation expected = cpu.evaluate(source, 1), found = fp32.evaluate(source, 1);
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.correct, expected.correct);
  EXPECT_NEAR(found.loss(), expected.loss(), 1e-5 * expected.loss());
}

}  // namespace
}  // namespace kata
