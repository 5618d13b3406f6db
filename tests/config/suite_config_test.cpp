#include "config/suite_config.h"

#include "config/config_files.h"

namespace kata {
namespace {

using test::ConfigFiles;

// Lines 1 to 6; tests add lines from 7 on.
const std::string good =
    "suite: mqar\n"
    "model: {layers: 2, mlp: 256}\n"
    "models:\n"
    "  - {name: softmax, mixer: {preset: softmax}}\n"
    "  - {name: hybrid, mixer: [{preset: softmax}, {preset: kata_m1, conv: 4}]}\n"
    "task: {segments: [{length: 64, pairs: 4, examples: 1000}, {length: 128, pairs: 8, examples: 100}]}\n";
const std::string grid =
    "evaluation: [{length: 256, pairs: 64, examples: 10}, {length: 1024, pairs: 256, examples: 10}]\n";

class Suite : public ::testing::Test {
 protected:
  SuiteConfig load(const std::string& text, bool quick = false,
                   const std::vector<std::string>& overrides = {}) {
    return load_suite_config(files.write("s.yaml", text), quick, overrides);
  }
  std::string error(const std::string& text, bool quick = false,
                    const std::vector<std::string>& overrides = {}) {
    return files.message([&] { load(text, quick, overrides); });
  }
  ConfigFiles files;
};

TEST_F(Suite, ResolvesItsModelsAndLength) {
  const SuiteConfig suite =
      load(good + grid + "train: {epochs: 3, batch: 256, learning_rates: [1e-3, 3e-3]}\n");
  ASSERT_EQ(suite.models.size(), 2u);
  ASSERT_EQ(suite.models[0].mixers.size(), 2u);
  EXPECT_EQ(suite.models[0].mixers[1].preset, "softmax");
  EXPECT_EQ(suite.models[1].mixers[1].conv, 4);
  EXPECT_EQ(suite.model.head_dim, 64);
  EXPECT_EQ(suite.model.kv_heads, 2);
  EXPECT_EQ(suite.model.vocab, 8192);
  EXPECT_EQ(suite.steps(), 3 * (4 + 1));  // the last batch of a segment may be short
  EXPECT_EQ(load(good + grid + "train: {steps: 7}\n").steps(), 7);
  const SuiteConfig longer = load(good + grid, false, {"models.1.steps=1000", "train.steps=7"});
  EXPECT_EQ(run_config(longer, longer.models[0], 1e-3).train.steps, 7);
  EXPECT_EQ(run_config(longer, longer.models[1], 1e-3).train.steps, 1000);
  EXPECT_EQ(load(dump(suite)).models[1].mixers[1].conv, 4);
  EXPECT_EQ(dump(load(dump(suite))), dump(suite));
}

TEST_F(Suite, GivesTheRunOfACell) {
  const SuiteConfig suite = load(good + grid +
                                 "train: {steps: 9, batch: 32, seed: 5, clip: 2, micro_batch: 8, threads: "
                                 "1}\noptimizer: {betas: [0.8, 0.9]}\n");
  const RunConfig run = run_config(suite, suite.models[1], 3e-3);
  EXPECT_EQ(run.train.steps, 9);
  EXPECT_EQ(run.train.sequence, 128);
  EXPECT_EQ(run.train.rows(), 32);
  EXPECT_EQ(run.train.seed, 5u);
  EXPECT_EQ(run.train.clip, 2);
  EXPECT_EQ(run.train.micro_batch, 8);
  EXPECT_EQ(run.train.threads, 1);
  EXPECT_EQ(run.optimizer.lr, 3e-3);
  EXPECT_EQ(run.optimizer.betas[0], 0.8);
  EXPECT_EQ(run.optimizer.warmup, 0);
  EXPECT_EQ(run.optimizer.final_lr, 0);
  // What the suite gives is a run that a file may hold as well.
  const RunConfig again = load_run_config(files.write("run.yaml", dump(run)), {});
  EXPECT_TRUE(differences(run, again).empty());
}

TEST_F(Suite, QuickIsLaidOver) {
  const std::string quick =
      "quick:\n  train: {steps: 3}\n  evaluation: [{length: 64, pairs: 4, examples: 5}]\n";
  EXPECT_EQ(load(good + grid + quick).steps(), 32 * 5);
  const SuiteConfig suite = load(good + grid + quick, true);
  EXPECT_EQ(suite.steps(), 3);
  ASSERT_EQ(suite.evaluation.size(), 1u);
  EXPECT_EQ(suite.evaluation[0].examples, 5);
  EXPECT_EQ(load(good + grid + quick, true, {"train.steps=4"}).steps(), 4);
}

TEST_F(Suite, ResolvesTheSegmentsOfOverwrite) {
  std::string text = good;
  text.insert(text.find("task: {") + 7, "name: overwrite, ");
  const std::string cells =
      "evaluation: [{length: 64, pairs: 4, rewrites: 4, rewritten: 2, layout: interleaved, "
      "examples: 5}, {length: 64, pairs: 4, examples: 5}]\n";
  const SuiteConfig suite = load(text + cells);
  EXPECT_TRUE(suite.task.segments[0].same_kind({64, 4, 0, 1, 4, "block"}));
  EXPECT_TRUE(suite.evaluation[0].same_kind({64, 4, 0, 4, 2, "interleaved"}));
  EXPECT_TRUE(suite.evaluation[1].same_kind(suite.task.segments[0]));
  EXPECT_FALSE(suite.evaluation[0].same_kind(suite.evaluation[1]));
  EXPECT_EQ(dump(load(dump(suite))), dump(suite));
  const RunConfig run = run_config(suite, suite.models[0], 1e-3);
  EXPECT_TRUE(differences(run, load_run_config(files.write("run.yaml", dump(run)), {})).empty());
  EXPECT_EQ(
      error(text + cells, false, {"evaluation.1.pairs=16"}),
      "--set evaluation.1.pairs=16: evaluation.1.pairs: 32 bindings and 16 questions take 96 tokens, which "
      "do "
      "not fit in length 64; expected 2 * (pairs + rewrites * rewritten) + 2 * pairs of at most the length");
  EXPECT_EQ(dump(load(good + grid)).find("rewrites"), std::string::npos) << "mqar has none";
}

TEST_F(Suite, FaultsAreNamed) {
  EXPECT_EQ(error(good + grid, true), "s.yaml: the suite has no quick: map; run it without --quick");
  EXPECT_EQ(error(good + grid + "quick: yes\n"),
            "s.yaml:8:8: quick: expected a map of keys of this file, found 'yes'");
  // A fault under quick: is seen without --quick as well.
  EXPECT_EQ(error(good + grid + "quick: {train: {step: 3}}\n"),
            "s.yaml:8:17: train.step: unknown key; did you mean 'steps'?");
  EXPECT_EQ(error(good),
            "s.yaml: evaluation: empty; give a list such as [{length: 64, pairs: 4, examples: 1000}]");
  EXPECT_EQ(error(good + "evaluation: [{length: 8192, pairs: 4, examples: 1}]\n"),
            "s.yaml:7:23: evaluation.0.length: 8192 is not below the task's vocabulary of 8192");
  EXPECT_EQ(error("model: {layers: 2}\n"), "s.yaml:1:1: suite: is missing: name of the suite");
  EXPECT_EQ(error("suite: mqar\ntask: {segments: [{length: 64, pairs: 4, examples: 9}]}\n" + grid),
            "s.yaml: models: empty; give at least one model");
  EXPECT_EQ(error(good + grid, false, {"models.1.name=softmax"}),
            "--set models.1.name=softmax: models.1.name: 'softmax' is the name of an earlier model");
  EXPECT_EQ(error(good + grid, false, {"models.1.mixer.1.preset=kata_m5"}),
            "--set models.1.mixer.1.preset=kata_m5: models.1.mixer.1.preset: expected one of softmax, "
            "linear_orthant, "
            "linear_lorentz, kata_m1, kata_m2, kata_m4, kata_s2, kata_s4, hermitian_kata, quaternionic_kata, "
            "gatedkata_m1, gatedkata_m2, deltakata_m1, deltakata_m2, gateddeltakata_m1, gateddeltakata_m2, "
            "deltanet, gated_deltanet, mamba2, found 'kata_m5'; did you mean "
            "'kata_m1'?");
  EXPECT_EQ(error(good + grid, false, {"model.layers=3"}),
            "s.yaml:5:27: models.1.mixer: a list of 2 mixers for 3 layers; give one per layer, or a single "
            "map for all");
  EXPECT_EQ(error(good + grid + "optimizer: {lr: 1e-3}\n"),
            "s.yaml:8:13: optimizer.lr: unknown key; the keys here are "
            "betas, eps, weight_decay, schedule, warmup, final_lr, decay_steps");
  EXPECT_EQ(error(good + grid + "optimizer: {final_lr: 1}\n"),
            "s.yaml:8:23: optimizer.final_lr: 1 is above the peak learning rate 0.001");
  EXPECT_EQ(error(good + grid + "train: {learning_rates: []}\n"),
            "s.yaml:8:25: train.learning_rates: empty; give at least one rate");
  EXPECT_EQ(error(good + grid + "train: {learning_rates: [1, 0]}\n"),
            "s.yaml:8:29: train.learning_rates.1: expected a finite number, above 0, found '0'");
  EXPECT_EQ(error(good + grid + "train: {batch: 10, micro_batch: 3}\n"),
            "s.yaml:8:33: train.micro_batch: 3 does not divide the batch of 10");
  EXPECT_EQ(error(good + grid + "train: {batch: 2147483648}\n", false, {"task.segments.1.length=8190"}),
            "s.yaml:8:16: train.batch: 2147483648 examples of 8190 tokens are more than 1099511627776 tokens "
            "a step");
  EXPECT_EQ(error(good + grid, false, {"model.vocab=64"}),
            "--set model.vocab=64: model.vocab: 64 is smaller than the task's vocabulary of 8192");
}

}  // namespace
}  // namespace kata
