// data.document_token through the real program: every line of the corpus is a document of its own.
#include <filesystem>

#include "apps/workspace.h"

namespace kata {
namespace {

using test::expect_error;
using test::Workspace;

const std::string line_feed = "data.document_token=10";

std::string weights(const Workspace& w, const std::string& run) {
  return w.read(w.newest(run) + "/model.safetensors") + w.read(w.newest(run) + "/optimizer.safetensors");
}

// A run of a few steps in `folder`.
void train(const Workspace& w, const std::string& folder, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--config", "run.yaml", "--output", folder, "--set", "train.steps=8", "--set",
                             "train.checkpoint_every=7", "--set", "train.threads=1"});
  const auto result = w.run("katatrain", more);
  ASSERT_EQ(result.exit_code, 0) << result.err;
}

TEST(DocumentToken, ChangesLossesFromTheFirstStepOn) {
  const Workspace w;
  train(w, "without");
  train(w, "with", {"--set", line_feed});
  const auto without = w.metrics("without"), with = w.metrics("with");
  ASSERT_EQ(with.size(), without.size());
  for (size_t i = 0; i < with.size(); ++i) {
    EXPECT_NE(with[i].at("loss"), without[i].at("loss")) << i;
    const bool validated = with[i].contains("validation_loss");
    ASSERT_EQ(validated, without[i].contains("validation_loss"));
    if (!validated) continue;
    EXPECT_NE(with[i].at("validation_loss"), without[i].at("validation_loss")) << i;
  }
}

// Byte 200 is nowhere in the text: every row is one document, as without.
TEST(DocumentToken, ThatIsAbsentChangesNothing) {
  const Workspace w;
  train(w, "without");
  train(w, "absent", {"--set", "data.document_token=200"});
  EXPECT_EQ(w.metrics("absent"), w.metrics("without"));
}

TEST(DocumentToken, ThreadsAndRecomputeChangeNoBit) {
  const Workspace w;
  train(w, "one", {"--set", line_feed});
  train(w, "two", {"--set", line_feed, "--set", "train.threads=2"});
  train(w, "again", {"--set", line_feed, "--set", "train.recompute=block"});
  for (const char* other : {"two", "again"}) {
    EXPECT_EQ(w.metrics(other), w.metrics("one"));
    EXPECT_TRUE(weights(w, other) == weights(w, "one")) << other;
  }
}

TEST(DocumentToken, EveryMicroBatchTakesItsOwnDocuments) {
  const Workspace w;
  train(w, "4", {"--set", line_feed, "--set", "train.micro_batch=4", "--steps", "2"});
  const auto whole = w.metrics("4");
  for (const std::string rows : {"1", "2"}) {
    train(w, rows, {"--set", line_feed, "--set", "train.micro_batch=" + rows, "--steps", "2"});
    for (size_t i = 0; i < whole.size(); ++i)
      for (const char* key : {"loss", "grad_norm"})
        EXPECT_NEAR(w.metrics(rows)[i].at(key).get<double>(), whole[i].at(key).get<double>(), 1e-5)
            << rows << " rows, step " << i << ", " << key;
  }
}

TEST(DocumentToken, AResumedRunIsTheWholeRun) {
  const Workspace w;
  train(w, "whole", {"--set", line_feed});
  train(w, "cut", {"--set", line_feed});
  std::filesystem::remove_all(w.dir / w.newest("cut"));  // goes on from the checkpoint before
  train(w, "cut", {"--set", line_feed, "--resume"});
  EXPECT_EQ(w.metrics("cut"), w.metrics("whole"));
  EXPECT_TRUE(weights(w, "cut") == weights(w, "whole"));
  expect_error(w.run("katatrain", {"--config", "run.yaml", "--output", "cut", "--set", "train.steps=8",
                                   "--set", "train.checkpoint_every=7", "--set", "train.threads=1", "--set",
                                   "data.document_token=32", "--resume"}),
               2, {"data.document_token", "10", "32"});
}

TEST(DocumentToken, MustBeBelowTheVocabulary) {
  const Workspace w;
  for (const std::string id : {"256", "16777216"})
    expect_error(w.train({"--set", "data.document_token=" + id}), 2,
                 {"data.document_token", id, "vocabulary of 256"});
  expect_error(w.train({"--set", "data.document_token=16777217"}), 2, {"data.document_token", "16777217"});
  expect_error(w.train({"--set", "data.document_token=-2"}), 2, {"data.document_token", "-2"});
  EXPECT_FALSE(w.exists("out"));
  train(w, "largest", {"--set", "data.document_token=255"});
}

// The memory that was planned is enough for every kind of mixer.
TEST(DocumentToken, OnEveryKindOfMixer) {
  const Workspace w;
  for (const std::string preset :
       {"softmax", "kata_s2", "gatedkata_m1", "gateddeltakata_m2", "gated_deltanet", "mamba2"}) {
    const std::string mixer = "model.mixer={preset: " + preset + "}";
    train(w, preset, {"--set", mixer, "--set", line_feed, "--steps", "2"});
    train(w, preset + "_without", {"--set", mixer, "--steps", "2"});
    EXPECT_NE(w.metrics(preset)[0].at("loss"), w.metrics(preset + "_without")[0].at("loss")) << preset;
  }
}

}  // namespace
}  // namespace kata
