// The Llama layout: logits equal to those of transformers, export and import as inverses, and folders that
// are refused. The fixtures were made by scripts/check_llama_interchange.py.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/safetensors_set.h"
#include "nn/generator.h"
#include "support/errors.h"
#include "support/small_model.h"
#include "support/temp_dir.h"
#include "train/inference_model.h"
#include "train/llama_files.h"

namespace kata {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::fails_with;
using test::TempDir;

const std::string fixtures = std::string(KATA_SOURCE_DIR) + "/tests/train/fixtures";

// Logits [time * vocab] after every token.
std::vector<float> logits_of(LanguageModel& model, const std::vector<int32_t>& tokens) {
  Generator generator(model, static_cast<int64_t>(tokens.size()));
  std::vector<float> all;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const float* next = t == 0 ? generator.start({{tokens[0]}}) : generator.feed({tokens[t]});
    all.insert(all.end(), next, next + model.config().vocab);
  }
  return all;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(most) || difference <= most) continue;  // a NaN stays
    most = difference;
  }
  return most;
}

// A folder's tokens, and the logits that transformers computed for them.
struct Expected {
  explicit Expected(const std::string& folder) {
    const SafetensorsFile file(folder + "/logits.safetensors");
    tokens.resize(static_cast<size_t>(file.info("tokens").shape.at(0)));
    file.read_into("tokens", Tensor(tokens.data(), DType::i32, {static_cast<int64_t>(tokens.size())}));
    const std::vector<int64_t> shape = file.info("logits").shape;
    logits.resize(tokens.size() * static_cast<size_t>(shape.at(1)));
    file.read_into("logits", Tensor(logits.data(), DType::f32, {shape[0], shape[1]}));
  }
  std::vector<int32_t> tokens;
  std::vector<float> logits;
};

TEST(Llama, LogitsOfTransformers) {
  std::vector<std::string> roots = {fixtures};
  if (const char* more = std::getenv("KATA_LLAMA_CASES")) roots.emplace_back(more);
  size_t found = 0;
  for (const std::string& root : roots)
    for (const auto& entry : fs::directory_iterator(root)) {
      const std::string folder = entry.path().string();
      if (!fs::exists(entry.path() / "config.json")) continue;
      SCOPED_TRACE(folder);
      ++found;
      const Expected expected(folder);
      LlamaImport imported(folder);
      const std::vector<float> logits = logits_of(imported.model(), expected.tokens);
      ASSERT_EQ(logits.size(), expected.logits.size());
      const double difference = largest_difference(logits, expected.logits);
      std::printf("%s: largest difference %.2g\n", entry.path().filename().c_str(), difference);
      EXPECT_LE(difference, 1e-4);
      EXPECT_GE(*std::max_element(logits.begin(), logits.end()), 1.0f) << "too small to tell models apart";

      // All tokens at once.
      Generator generator(imported.model(), static_cast<int64_t>(expected.tokens.size()));
      const float* last = generator.start({expected.tokens});
      const int64_t vocab = imported.model().config().vocab;
      EXPECT_LE(
          largest_difference({last, last + vocab}, {expected.logits.end() - vocab, expected.logits.end()}),
          1e-4);
    }
  EXPECT_GE(found, 2u);
}

// A model of ours with weights of its own for every row.
ModelConfig our_config(bool tied) {
  ModelConfig config = test::small_config(test::mixer("softmax"));
  config.heads = 3;
  config.kv_heads = 1;
  config.tie_embeddings = tied;
  config.norm_eps = 1e-4;
  config.mixers[0].rope_base = config.mixers[1].rope_base = 777;
  return config;
}

class LlamaFolder : public ::testing::Test {
 protected:
  TempDir dir;
  std::string folder = dir / "llama";
};

TEST_F(LlamaFolder, ExportAndImportAreInverse) {
  for (const bool tied : {true, false})
    for (const uint64_t file_bytes : {uint64_t{1} << 30, uint64_t{2000}}) {
      SCOPED_TRACE(fmt::format("tied {}, files of {}", tied, file_bytes));
      fs::remove_all(folder);
      test::SmallModel ours(our_config(tied), DType::f32, 1, 1);
      const Parameters& parameters = ours.model.parameters();
      const std::vector<int32_t> tokens = test::random_tokens(20, 19, 3, false);
      const std::vector<float> logits = logits_of(ours.model, tokens);
      const float* values = parameters.values().as<float>();
      const std::vector<float> before(values, values + parameters.count());

      LlamaExport options;
      options.context.longest = 99;
      options.context.bos = 3;
      options.context.eos = json{4, 5};
      options.file_bytes = file_bytes;
      options.files = {{"tokenizer.model", "bytes of it"}};
      write_llama_folder(folder, ours.model, options);
      EXPECT_EQ(fs::exists(folder + "/model.safetensors"), file_bytes > 2000);
      EXPECT_EQ(read_file(folder + "/tokenizer.model"), "bytes of it");

      LlamaImport back(folder);
      EXPECT_EQ(back.context.longest, 99);
      EXPECT_EQ(back.context.bos, 3);
      EXPECT_EQ(back.context.eos, (json{4, 5}));
      const ModelConfig& config = back.model().config();
      EXPECT_EQ(config.norm_eps, 1e-4);
      EXPECT_EQ(config.kv_heads, 1);
      EXPECT_EQ(config.tie_embeddings, tied);
      EXPECT_EQ(config.mixers.at(1).rope_base, 777);
      ASSERT_EQ(back.model().parameters().count(), parameters.count());
      const float* after = back.model().parameters().values().as<float>();
      EXPECT_TRUE(std::equal(before.begin(), before.end(), after));
      EXPECT_EQ(logits_of(back.model(), tokens), logits);
    }
}

TEST_F(LlamaFolder, RoundedWeightsAreTheNearestOnes) {
  test::SmallModel ours(our_config(false), DType::f32, 1, 1);
  const Parameters& parameters = ours.model.parameters();
  const float* values = parameters.values().as<float>();
  const std::vector<float> before(values, values + parameters.count());
  LlamaExport options;
  options.context.longest = 8;
  options.context.dtype = "bfloat16";
  write_llama_folder(folder, ours.model, options);
  EXPECT_EQ(json::parse(read_file(folder + "/config.json")).at("torch_dtype"), "bfloat16");
  EXPECT_EQ(SafetensorsFile(folder + "/model.safetensors").info("lm_head.weight").dtype, "BF16");
  LlamaImport back(folder);
  const float* after = back.model().parameters().values().as<float>();
  for (size_t i = 0; i < before.size(); ++i)
    ASSERT_LE(std::abs(after[i] - before[i]), std::abs(before[i]) / 256) << i;
}

TEST_F(LlamaFolder, AnImportedModelIsACheckpoint) {
  LlamaImport imported(fixtures + "/llama_grouped");
  save_imported(dir / "run", imported, "bytes", {"tokenizer.json", "{}"});
  InferenceModel loaded(dir / "run");
  EXPECT_EQ(loaded.step(), 0);
  EXPECT_EQ(loaded.config().train.sequence, 64);
  const Expected expected(fixtures + "/llama_grouped");
  EXPECT_EQ(logits_of(loaded.model(), expected.tokens), logits_of(imported.model(), expected.tokens));
}

TEST_F(LlamaFolder, ModelsThatLlamaCannotExpress) {
  const auto refused = [](const ModelConfig& config, std::vector<std::string> parts) {
    return fails_with(ExitCode::usage, parts, [&] { llama_tensors(config); });
  };
  ModelConfig config = our_config(true);
  config.mixers[1] = test::mixer("kata_m2");
  EXPECT_TRUE(refused(config, {"model.mixer: layer 1 is kata_m2", "{preset: softmax}", "lm340m_softmax"}));
  config.mixers[1].preset.clear();
  EXPECT_TRUE(refused(config, {"layer 1 is map psd"}));
  config = our_config(true);
  config.mixers[0].rope_base.reset();
  EXPECT_TRUE(refused(config, {"layer 0 has rope: none", "rope: {base: 10000}"}));
  config = our_config(true);
  config.mixers[1].rope_base = 500;
  EXPECT_TRUE(refused(config, {"layer 1 has the rope base 500, layer 0 777", "single mixer"}));
}

TEST_F(LlamaFolder, AFolderInUseIsNotWritten) {
  make_directories(folder);
  require_empty_folder(folder);
  require_empty_folder(folder + "/new");
  write_file_atomic(folder + "/x", "x");
  EXPECT_TRUE(
      fails_with(ExitCode::usage, {folder, "not an empty folder"}, [&] { require_empty_folder(folder); }));
  EXPECT_TRUE(fails_with(ExitCode::usage, {folder + "/x"}, [&] { require_empty_folder(folder + "/x"); }));
}

// ---- folders that are refused ----

// A copy of a fixture that a test damages.
class BadLlama : public LlamaFolder {
 protected:
  void SetUp() override { copy("llama_grouped"); }

  void copy(const std::string& fixture) {
    fs::remove_all(folder);
    fs::copy(fixtures + "/" + fixture, folder);
  }
  ::testing::AssertionResult refused(const std::vector<std::string>& parts) {
    return fails_with(ExitCode::data, parts, [&] { LlamaImport imported(folder); });
  }
  // config.json with a key changed, or removed for null.
  ::testing::AssertionResult config_refused(const std::string& key, const json& value,
                                            const std::vector<std::string>& parts) {
    const std::string path = folder + "/config.json", text = read_file(path);
    json config = json::parse(text);
    config[key] = value;
    if (value.is_null()) config.erase(key);
    write_file_atomic(path, config.dump());
    std::vector<std::string> all = parts;
    all.push_back(path + ": ");
    all.push_back(key);
    const auto result = refused(all);
    write_file_atomic(path, text);
    return result;
  }
  // The single file with other tensors: edit gets a copy of all of them.
  void rewrite(const std::function<void(NamedTensors&)>& edit) {
    const std::string path = folder + "/model.safetensors";
    std::vector<std::vector<float>> data;
    NamedTensors tensors;
    {
      const SafetensorsFile file(path);
      for (const std::string& name : file.names()) {
        const std::vector<int64_t>& dims = file.info(name).shape;
        const Shape shape = dims.size() == 1 ? Shape{dims[0]} : Shape{dims[0], dims[1]};
        data.emplace_back(static_cast<size_t>(shape.numel()));
        tensors.emplace_back(name, Tensor(data.back().data(), DType::f32, shape));
        file.read_into(name, tensors.back().second);
      }
    }
    edit(tensors);
    write_safetensors(path, tensors);
  }
  static Tensor& find(NamedTensors& tensors, const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == name; })
        ->second;
  }
};

TEST_F(BadLlama, KeysOfConfigJson) {
  for (const json& value : {json(-24), json(0), json(24.0), json("24"), json(true), json(1 << 21)})
    EXPECT_TRUE(config_refused("hidden_size", value, {"expected a whole number from 1 to 1048576", "found"}));
  EXPECT_TRUE(config_refused("hidden_size", nullptr, {"is missing"}));
  for (const char* key : {"vocab_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    EXPECT_TRUE(config_refused(key, -1, {"found -1"}));
    EXPECT_TRUE(config_refused(key, nullptr, {"is missing"}));
  }
  EXPECT_TRUE(config_refused("num_key_value_heads", -1, {"found -1"}));
  EXPECT_TRUE(config_refused("num_key_value_heads", 2, {"does not divide the 3"}));
  EXPECT_TRUE(config_refused("head_dim", -8, {"found -8"}));
  EXPECT_TRUE(config_refused("head_dim", 7, {"7 is odd"}));
  EXPECT_TRUE(config_refused("max_position_embeddings", -1, {"found -1"}));
  EXPECT_TRUE(config_refused("rms_norm_eps", -1e-5, {"above 0"}));
  EXPECT_TRUE(config_refused("rms_norm_eps", 2, {"up to 1"}));
  EXPECT_TRUE(config_refused("tie_word_embeddings", 1, {"true or false"}));
  EXPECT_TRUE(config_refused("bos_token_id", -1, {"token id"}));
  EXPECT_TRUE(config_refused("eos_token_id", json{2, "x"}, {"token id"}));
}

TEST_F(BadLlama, FunctionsThatOurLayerLacks) {
  EXPECT_TRUE(config_refused("architectures", json{"MistralForCausalLM"}, {"MistralForCausalLM"}));
  EXPECT_TRUE(config_refused("model_type", "qwen2", {"qwen2"}));
  EXPECT_TRUE(config_refused("attention_bias", true, {"true is not supported, only false"}));
  EXPECT_TRUE(config_refused("mlp_bias", true, {"not supported"}));
  EXPECT_TRUE(config_refused("hidden_act", "gelu", {"\"gelu\" is not supported, only \"silu\""}));
  EXPECT_TRUE(config_refused("sliding_window", 4096, {"4096"}));
  EXPECT_TRUE(config_refused("quantization_config", json::object(), {"not supported"}));
  EXPECT_TRUE(config_refused("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, {"type", "\"linear\""}));
  EXPECT_TRUE(config_refused("rope_scaling", {{"rope_type", "llama3"}}, {".rope_type", "\"llama3\""}));
  EXPECT_TRUE(config_refused("rope_parameters", {{"rope_type", "yarn"}}, {".rope_type", "\"yarn\""}));
  EXPECT_TRUE(config_refused("rope_parameters", {{"rope_theta", -1}}, {".rope_theta", "above 0"}));
  EXPECT_TRUE(config_refused("rope_scaling", 2, {"expected an object, or null"}));
}

TEST_F(BadLlama, ConfigsThatAreNoJsonObject) {
  const std::string path = folder + "/config.json";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{} {}"), std::string("{}\0", 3),
        std::string(100000, '['), std::string("{\"a\":1e999}"),
        std::string("{\"vocab_size\":1,\"vocab_size\":2}"), std::string("{\"a\":\"\xff\"}"),
        std::string(5 << 20, ' ')}) {
    write_file_atomic(path, text);
    EXPECT_TRUE(refused({path})) << text.substr(0, 40);
  }
  fs::remove(path);
  EXPECT_TRUE(refused({path}));
}

TEST_F(BadLlama, TensorsThatDoNotFit) {
  const std::string file = folder + "/model.safetensors";
  rewrite([](NamedTensors& tensors) { tensors.pop_back(); });
  EXPECT_TRUE(refused({file, "model.norm.weight", "is missing"}));
  copy("llama_grouped");
  rewrite([](NamedTensors& tensors) {
    Tensor& k = find(tensors, "model.layers.1.self_attn.k_proj.weight");
    k = k.view({4, 48});
  });
  EXPECT_TRUE(refused({file, "model.layers.1.self_attn.k_proj.weight", "asks for [8, 24]", "found [4, 48]"}));
  copy("llama_grouped");
  rewrite([](NamedTensors& tensors) {
    tensors.emplace_back("model.layers.0.self_attn.q_proj.bias", tensors.back().second);
  });
  EXPECT_TRUE(refused({file, "q_proj.bias", "has no place"}));
  copy("llama_grouped");
  rewrite([](NamedTensors& tensors) {
    Tensor& norm = find(tensors, "model.norm.weight");
    norm = Tensor(norm.data(), DType::i32, norm.shape());
  });
  EXPECT_TRUE(refused({file, "model.norm.weight", "expected F32, F16 or BF16, found I32"}));
  copy("llama_grouped");
  rewrite([](NamedTensors& tensors) { find(tensors, "model.norm.weight").as<float>()[3] = NAN; });
  EXPECT_TRUE(refused({file, "model.norm.weight", "nan at [3]"}));
  copy("llama_grouped");
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_TRUE(refused({file, "truncated"}));
}

TEST_F(BadLlama, MoreLayersThanTheFilesHoldAreRefusedBeforeMemoryIsTaken) {
  const std::string path = folder + "/config.json", text = read_file(path);
  const auto with = [&](const char* key, int64_t value) {
    json config = json::parse(text);
    config[key] = value;
    write_file_atomic(path, config.dump());
  };
  with("num_hidden_layers", 10000);
  EXPECT_TRUE(refused({folder + "/model.safetensors", "model.layers.2.", "is missing"}));
  with("num_attention_heads", 65536);
  EXPECT_TRUE(refused({folder + "/model.safetensors", "q_proj", "asks for [524288, 24], found [24, 24]"}));
}

TEST_F(BadLlama, WhatOldFilesHoldBesideTheModelIsLeftOut) {
  rewrite([](NamedTensors& tensors) {
    tensors.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", tensors.back().second);
  });
  LlamaImport imported(folder);
}

TEST_F(BadLlama, AWrittenHeadOfATiedModelMustBeTheEmbedding) {
  const std::string path = folder + "/config.json";
  json config = json::parse(read_file(path));
  config["tie_word_embeddings"] = true;
  write_file_atomic(path, config.dump());
  EXPECT_TRUE(refused({"lm_head.weight", "differs from \"model.embed_tokens.weight\""}));
  rewrite([](NamedTensors& tensors) {
    find(tensors, "lm_head.weight") = find(tensors, "model.embed_tokens.weight");
  });
  LlamaImport imported(folder);
  EXPECT_TRUE(imported.model().config().tie_embeddings);
}

}  // namespace
}  // namespace kata
