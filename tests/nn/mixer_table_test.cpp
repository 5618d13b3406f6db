#include "nn/mixer_table.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "nn/language_model.h"

namespace kata {
namespace {

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

std::vector<std::string> row(const std::string& table, const std::string& preset) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(preset + " ", 0) == 0) return words(line);
  return {};
}

TEST(MixerTable, HasALinePerPresetWithItsCosts) {
  const std::string table = mixer_table(sizes_of_340m());
  for (const Preset& preset : presets()) EXPECT_GE(row(table, preset.name).size(), 9u) << preset.name;
  // 16 heads of 64: n (64 + 1) each; four projections of 1024 x 1024 and three norms of 64.
  const auto kata = row(table, "kata_m1");
  EXPECT_EQ(kata[6], std::to_string(16 * 2080 * 65));
  EXPECT_EQ(kata[7], std::to_string(4 * 1024 * 1024 + 3 * 64));
  EXPECT_EQ(kata[8], std::to_string(2 * 4 * 1024 * 1024 + 4 * 16 * 2080 * 65));
  const auto softmax = row(table, "softmax");
  EXPECT_EQ(softmax[6], std::to_string(2048 * 16 * 128));
  EXPECT_EQ(softmax[8], std::to_string(2 * 4 * 1024 * 1024 + 2 * 2049 * 16 * 128));
  // The delta rule reads once more, has a projection of beta and no norm weights for q and k.
  const auto delta = row(table, "deltakata_m1");
  EXPECT_EQ(delta[6], std::to_string(16 * 2080 * 64));
  EXPECT_EQ(delta[7], std::to_string(4 * 1024 * 1024 + 16 * 1024 + 64));
  EXPECT_EQ(delta[8], std::to_string(2 * (4 * 1024 * 1024 + 16 * 1024) + 6 * 16 * 2080 * 64));
  // Mamba-2: 32 heads of 64 with keys of 128.
  EXPECT_EQ(row(table, "mamba2")[6], std::to_string(32 * 128 * 64));
}

TEST(MixerTable, SaysWhatDoesNotFit) {
  ModelConfig sizes;
  sizes.hidden = 30;
  sizes.heads = 5;  // of 6: no quaternions
  const std::string table = mixer_table(sizes);
  EXPECT_NE(table.find("does not fit: "), std::string::npos);
  EXPECT_NE(table.find("quaternionic takes 4 coordinates as one number, but head_dim is 6"),
            std::string::npos)
      << table;
}

TEST(MixerTable, TheReadmeHoldsIt) {
  std::ifstream in(std::string(KATA_SOURCE_DIR) + "/configs/README.md");
  std::stringstream readme;
  readme << in.rdbuf();
  const std::string table = mixer_table(sizes_of_340m());
  EXPECT_NE(readme.str().find(table), std::string::npos) << "configs/README.md should hold:\n" << table;
}

ModelConfig large_config(const std::string& preset) {
  ModelConfig config = sizes_of_340m();
  config.layers = 24;
  config.mlp = 2816;
  config.vocab = 32000;
  config.mixers = {mixer_of(preset)};
  resolve_model(config);
  return config;
}

int64_t parameters(const std::string& preset) {
  return LanguageModel(large_config(preset), DType::f32).parameters().count();
}

// MATH: layers and models.
TEST(MixerTable, The340MModelsOfTheGrid) {
  for (const char* preset : {"kata_m1", "kata_m2", "kata_m4", "kata_s2", "kata_s4", "hermitian_kata",
                             "quaternionic_kata", "linear_orthant", "linear_lorentz"})
    EXPECT_EQ(parameters(preset), 341'104'128) << preset;
  const int64_t norms = 24 * 2 * 64;  // of q and k
  EXPECT_EQ(parameters("deltakata_m1"), 341'104'128 - norms + 393'216);
  EXPECT_EQ(parameters("deltakata_m2"), 341'104'128 - norms + 393'216);
  EXPECT_EQ(parameters("gatedkata_m1"), 341'104'128 + 393'216 + 24 * 2 * 16);
  EXPECT_EQ(parameters("gateddeltakata_m1"), 341'104'128 - norms + 2 * 393'216 + 24 * 2 * 16);
}

}  // namespace
}  // namespace kata
