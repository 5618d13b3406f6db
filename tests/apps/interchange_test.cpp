// Models out of and into the Llama layout, and training that starts from given weights.
#include "apps/workspace.h"

namespace kata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;
using test::ProgramResult;
using test::Workspace;

class Interchange : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workspace_ = new Workspace;
    std::string config = Workspace::config;
    config.replace(config.find("{preset: kata_m2, conv: 3}"), 26, "{preset: softmax}");
    test::spill(workspace_->dir / "run.yaml", config);
    ASSERT_EQ(workspace_->train({"--steps", "12"}).exit_code, 0);
    ASSERT_EQ(run("katadata", {"export", "--checkpoint", "out", "--output", "llama"}).exit_code, 0);
    ASSERT_EQ(
        run("katadata", {"import", "--from", "llama", "--output", "back", "--tokenizer", "bytes"}).exit_code,
        0);
  }
  static void TearDownTestSuite() {
    delete workspace_;
    workspace_ = nullptr;
  }
  static ProgramResult run(const std::string& program, std::vector<std::string> arguments) {
    return workspace_->run(program, std::move(arguments));
  }
  // A run in the folder `output` from the weights of `initial`.
  static ProgramResult tune(const std::string& output, const std::string& initial,
                            std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {"--config", "run.yaml", "--output", output, "--set", "optimizer.schedule=constant", "--set",
                 "train.initial_checkpoint=" + initial});
    return run("katatrain", std::move(more));
  }
  static Workspace* workspace_;
};
Workspace* Interchange::workspace_ = nullptr;

TEST_F(Interchange, WhatIsExportedComesBackToTheBit) {
  const json config = json::parse(workspace_->read("llama/config.json"));
  EXPECT_EQ(config.at("architectures"), json{"LlamaForCausalLM"});
  EXPECT_EQ(config.at("hidden_size"), 16);
  EXPECT_EQ(config.at("max_position_embeddings"), 40);
  EXPECT_EQ(config.at("bos_token_id"), nullptr);
  EXPECT_EQ(config.at("torch_dtype"), "float32");
  const std::string there = "back/checkpoints/step-00000000/";
  EXPECT_EQ(workspace_->read(there + "model.safetensors"),
            workspace_->read(workspace_->newest() + "/model.safetensors"));
  const std::vector<std::string> arguments = {"--prompt", "line 3", "--tokens",    "60",
                                              "--seed",   "4",      "--checkpoint"};
  const auto text_of = [&](const std::string& checkpoint) {
    std::vector<std::string> all = arguments;
    all.push_back(checkpoint);
    const ProgramResult result = run("katagen", all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(text_of("back"), text_of("out"));
}

TEST_F(Interchange, SeveralFilesAndBf16) {
  ASSERT_EQ(run("katadata", {"export", "--checkpoint", "out", "--output", "small", "--dtype", "bf16",
                             "--file-bytes", "3000"})
                .exit_code,
            0);
  EXPECT_TRUE(workspace_->exists("small/model.safetensors.index.json"));
  EXPECT_FALSE(workspace_->exists("small/model.safetensors"));
  const ProgramResult back =
      run("katadata", {"import", "--from", "small", "--output", "small_back", "--tokenizer", "bytes"});
  EXPECT_EQ(back.exit_code, 0) << back.err;
}

TEST_F(Interchange, TrainingStartsFromGivenWeights) {
  ASSERT_EQ(tune("tuned", "out", {"--steps", "4"}).exit_code, 0);
  ASSERT_EQ(tune("tuned_back", "back", {"--steps", "4"}).exit_code, 0);
  EXPECT_EQ(workspace_->metrics("tuned"), workspace_->metrics("tuned_back"));
  const double first = workspace_->metrics("out").at(0).at("loss"),
               last = workspace_->metrics("out").at(11).at("loss");
  const double start = workspace_->metrics("tuned").at(0).at("loss");
  EXPECT_LT(std::abs(start - last), std::abs(start - first));

  // A run that goes on takes its own weights.
  ASSERT_EQ(tune("halves", "out", {"--steps", "2"}).exit_code, 0);
  const ProgramResult resumed = tune("halves", "out", {"--steps", "4", "--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(workspace_->read(workspace_->newest("halves") + "/model.safetensors"),
            workspace_->read(workspace_->newest("tuned") + "/model.safetensors"));
}

TEST_F(Interchange, TokenIdsStayWithAModelThatIsTunedFurther) {
  fs::copy(workspace_->dir / "llama", workspace_->dir / "with_ids");
  json config = json::parse(workspace_->read("with_ids/config.json"));
  config["bos_token_id"] = 7;
  config["eos_token_id"] = {8, 9};
  test::spill(workspace_->dir / "with_ids/config.json", config.dump());
  ASSERT_EQ(
      run("katadata", {"import", "--from", "with_ids", "--output", "ids", "--tokenizer", "bytes"}).exit_code,
      0);
  test::spill(workspace_->dir / "tune.yaml",
              "extends: ids/config.yaml\ndata: {train: [corpus/train-*.bin]}\n"
              "train: {initial_checkpoint: ids, steps: 2}\noptimizer: {warmup: 0}\n");
  const ProgramResult tuned = run("katatrain", {"--config", "tune.yaml", "--output", "ids_tuned"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  ASSERT_EQ(run("katadata", {"export", "--checkpoint", "ids_tuned", "--output", "ids_out"}).exit_code, 0);
  const json out = json::parse(workspace_->read("ids_out/config.json"));
  EXPECT_EQ(out.at("bos_token_id"), 7);
  EXPECT_EQ(out.at("eos_token_id"), (json{8, 9}));
}

TEST_F(Interchange, ASentencepieceModelGoesAlong) {
  ASSERT_EQ(
      run("katadata", {"train-tokenizer", "--input", "text.txt", "--vocab", "290", "--output", "t.model"})
          .exit_code,
      0);
  ASSERT_EQ(
      run("katadata", {"tokenize", "--input", "text.txt", "--tokenizer", "t.model", "--output", "pieces"})
          .exit_code,
      0);
  test::spill(workspace_->dir / "pieces.yaml",
              "extends: run.yaml\ndata: {tokenizer: t.model, train: [pieces/train-*.bin], validation: []}\n"
              "train: {steps: 2}\noptimizer: {warmup: 0}\n");
  const ProgramResult trained = run("katatrain", {"--config", "pieces.yaml", "--output", "pieces_run"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  ASSERT_EQ(run("katadata", {"export", "--checkpoint", "pieces_run", "--output", "pieces_llama"}).exit_code,
            0);
  EXPECT_EQ(workspace_->read("pieces_llama/tokenizer.model"), workspace_->read("t.model"));
  const json config = json::parse(workspace_->read("pieces_llama/config.json"));
  EXPECT_EQ(config.at("vocab_size"), 290);
  EXPECT_GE(config.at("bos_token_id").get<int>(), 0);
  EXPECT_EQ(config.at("bos_token_id"), config.at("eos_token_id"));
  ASSERT_EQ(run("katadata", {"import", "--from", "pieces_llama", "--output", "pieces_back"}).exit_code, 0);
  const auto text_of = [&](const std::string& checkpoint) {
    return run("katagen",
               {"--checkpoint", checkpoint, "--prompt", "line", "--tokens", "9", "--temperature", "0"})
        .out;
  };
  EXPECT_EQ(text_of("pieces_back"), text_of("pieces_run"));
  EXPECT_TRUE(text_of("pieces_back").starts_with("line"));
}

TEST_F(Interchange, OtherModelsAreNoStart) {
  expect_error(tune("x", "out", {"--set", "model.norm_eps=1e-5"}), 2,
               {"train.initial_checkpoint", "another model", "model.norm_eps is 1e-06", "1e-05"});
  expect_error(tune("x", "out", {"--set", "model.layers=3"}), 2, {"model.layers is 2, here it is 3"});
  expect_error(tune("x", "nowhere"), 3, {"nowhere"});
  EXPECT_FALSE(workspace_->exists("x"));
}

TEST_F(Interchange, WhatCannotBeExported) {
  const Workspace other;  // a kata_m2 model
  ASSERT_EQ(other.train({"--steps", "2"}).exit_code, 0);
  expect_error(other.run("katadata", {"export", "--checkpoint", "out", "--output", "llama"}), 2,
               {"model.mixer: layer 0 is kata_m2", "mixer: {preset: softmax}"});
  EXPECT_FALSE(other.exists("llama"));
  expect_error(run("katadata", {"export", "--checkpoint", "out", "--output", "llama"}), 2,
               {"llama", "not an empty folder"});
  expect_error(run("katadata", {"export", "--checkpoint", "nowhere", "--output", "y"}), 3, {"nowhere"});
  expect_error(run("katadata", {"export", "--checkpoint", "out", "--output", "y", "--dtype", "f16"}), 2,
               {"f16"});
}

TEST_F(Interchange, WhatCannotBeImported) {
  expect_error(run("katadata", {"import", "--from", "llama", "--output", "back"}), 2,
               {"not an empty folder"});
  expect_error(run("katadata", {"import", "--from", "llama", "--output", "y"}), 3,
               {"tokenizer.model", "--tokenizer bytes"});
  expect_error(run("katadata", {"import", "--from", "nowhere", "--output", "y"}), 3, {"nowhere"});
  expect_error(run("katadata", {"import", "--from", "corpus", "--output", "y", "--tokenizer", "bytes"}), 3,
               {"corpus/config.json"});
  EXPECT_FALSE(workspace_->exists("y"));
}

}  // namespace
}  // namespace kata
